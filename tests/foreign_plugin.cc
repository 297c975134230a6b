// A plugin for MPI and for Arrow that was built from other sources than the programs were.
struct Plugin {
  const char* build;
};

static const Plugin kPlugin = {"other sources"};

extern "C" const Plugin* neox_mpi_plugin() { return &kPlugin; }
extern "C" const Plugin* neox_arrow_plugin() { return &kPlugin; }
