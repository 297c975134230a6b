#include "launch/process_info.h"

#include "environments.h"

namespace neox {
namespace {

using namespace testing;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A row of ranks.txt: what the programs of the recording saw on a real cluster.
struct Row {
  std::string name;
  int rank, size, local_rank, local_size, node, num_nodes;
  std::string host;
};

std::vector<Row> rows() {
  std::vector<Row> rows;
  for (const std::string& line : split(read_file(kRecorded / "ranks.txt"), '\n')) {
    std::istringstream words(line);
    Row row;
    if (line.starts_with('#') || !(words >> row.name >> row.rank >> row.size >> row.local_rank >>
                                   row.local_size >> row.node >> row.num_nodes >> row.host))
      continue;
    rows.push_back(row);
  }
  return rows;
}

TEST(RecordedEnvironments, GiveTheRanksOfTheCluster) {
  std::map<std::string, std::vector<std::string>> hosts;
  for (const Row& row : rows()) hosts[row.name].push_back(row.host);
  int ranks = 0;
  for (const Row& row : rows()) {
    if (row.size == 0) continue;
    ProcessInfo info = process_info(recorded(row.name, row.rank), row.host);
    number_nodes(info, hosts.at(row.name));
    ++ranks;
    SCOPED_TRACE(concat(row.name, " ", row.rank));
    EXPECT_EQ(info.rank, row.rank);
    EXPECT_EQ(info.size, row.size);
    EXPECT_EQ(info.local_rank, row.local_rank);
    EXPECT_EQ(info.local_size, row.local_size);
    EXPECT_EQ(info.node, row.node);
    EXPECT_EQ(info.num_nodes, row.num_nodes);
    EXPECT_EQ(info.nodes.at(static_cast<size_t>(info.node)), row.host);
    EXPECT_THAT(info.notes, IsEmpty());
  }
  EXPECT_GE(ranks, 60);
}

TEST(RecordedEnvironments, AgreeOnTheMeetingPlace) {
  std::map<std::string, std::string> places;
  for (const Row& row : rows()) {
    if (row.size == 0) continue;
    ProcessInfo info = process_info(recorded(row.name, row.rank), row.host);
    std::string place =
        concat(info.rendezvous_host, ":", info.rendezvous_port, info.pmix, info.life);
    EXPECT_EQ(places.try_emplace(row.name, place).first->second, place) << row.name;
    if (row.name == "mpirun") continue;
    EXPECT_GE(info.rendezvous_port, 15000);
    EXPECT_LT(info.rendezvous_port, 30000);
    if (row.rank > 0) continue;
    EXPECT_EQ(info.rendezvous_host, row.host);
  }
}

TEST(RecordedEnvironments, TellTheTasksOfNodesWhereRanksFollowOneAnother) {
  EXPECT_THAT(process_info(recorded("srun", 3), "node2").tasks, ElementsAre(2, 2));
  EXPECT_THAT(process_info(recorded("uneven", 9), "node2").tasks, ElementsAre(8, 3, 1));
  EXPECT_THAT(process_info(recorded("cyclic", 1), "node2").tasks, IsEmpty());
}

TEST(RecordedEnvironments, TellWherePmixServes) {
  EXPECT_TRUE(process_info(recorded("srun_pmix", 1), "node1").pmix);
  EXPECT_FALSE(process_info(recorded("srun", 1), "node1").pmix);
  EXPECT_FALSE(process_info(recorded("srun_pmi2", 1), "node1").pmix);
  ProcessInfo mpirun = process_info(recorded("mpirun", 3), "node2");
  EXPECT_TRUE(mpirun.pmix);
  EXPECT_EQ(mpirun.rendezvous_port, 0);
  EXPECT_EQ(mpirun.launcher, "mpirun of Open MPI");
}

TEST(BatchShell, OfSeveralTasksIsRefused) {
  Environment batch = recorded("batch_shell", 0);
  EXPECT_THAT(refusal(batch), AllOf(HasSubstr("batch shell of Slurm job"), HasSubstr("4 tasks"),
                                    HasSubstr("start the program with srun")));
  EXPECT_THAT(refusal(with(batch, "WORLD_SIZE=4 MASTER_ADDR=node1")), HasSubstr("srun"));
  EXPECT_THAT(refusal(with(batch, "SLURM_NTASKS=1 SLURM_HET_SIZE=2")), HasSubstr("2 components"));
  EXPECT_THAT(refusal(with(batch, "SLURM_NTASKS=")), HasSubstr("2 tasks"));
}

TEST(BatchShell, OfOneTaskIsAlone) {
  ProcessInfo info = process_info(with(recorded("batch_shell", 0), "SLURM_NTASKS=1"), "node1");
  EXPECT_EQ(info.launcher, "alone");
  EXPECT_EQ(info.size, 1);
}

// Slurm leaves the variables of the step in which sbatch was called.
TEST(BatchShell, DoesNotTakeTheStepThatSubmittedItForItsOwn) {
  for (const char* step :
       {"SLURM_STEP_NODELIST=node2 SLURM_STEP_NUM_TASKS=1 SLURM_STEP_TASKS_PER_NODE=1",
        "SLURM_STEP_NODELIST=node1 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_TASKS_PER_NODE=2"}) {
    Environment shell =
        with(with(recorded("batch_shell", 0), step), "SLURM_STEP_ID=0 SLURM_STEP_NUM_NODES=1");
    EXPECT_THAT(refusal(shell), HasSubstr("batch shell of Slurm job")) << step;
    ProcessInfo info = process_info(with(shell, "SLURM_NTASKS=1"), "node1");
    EXPECT_EQ(info.launcher, "alone") << step;
    EXPECT_THAT(info.notes, ElementsAre(HasSubstr("in which this job was submitted")));
  }
}

TEST(SallocShell, IsAloneWithANote) {
  ProcessInfo info = process_info(recorded("salloc_shell", 0), "login");
  EXPECT_EQ(info.size, 1);
  EXPECT_THAT(info.notes, ElementsAre(HasSubstr("has 4 tasks; this is a single process")));
  // With LaunchParameters=use_interactive_step the shell is a step of its own on the first node.
  Environment interactive =
      with(recorded("srun", 0), "SLURM_STEP_ID=4294967290 SLURM_STEP_NUM_TASKS=1");
  EXPECT_EQ(process_info(interactive, "node1").launcher, "alone");
}

TEST(PyTorchHook, LosesAgainstTheStepWithANote) {
  Environment step = recorded("srun", 3);
  ProcessInfo info = process_info(with(step, kHook), "node2"), bare = process_info(step, "node2");
  EXPECT_THAT(info.notes, ElementsAre(HasSubstr("RANK=3 WORLD_SIZE=4 LOCAL_RANK=1")));
  info.notes.clear();
  EXPECT_EQ(describe(info), describe(bare));
  EXPECT_TRUE(info.launcher.starts_with("Slurm step")) << info.launcher;
}

TEST(PyTorchHook, WorldSizeAloneLosesWithANote) {
  for (const char* left : {"WORLD_SIZE=16", "WORLD_SIZE=4 MASTER_ADDR=node1 MASTER_PORT=1234"}) {
    ProcessInfo info = process_info(with(recorded("srun", 3), left), "node2");
    EXPECT_EQ(info.rank, 3);
    EXPECT_THAT(info.notes, ElementsAre(HasSubstr("WORLD_SIZE=")));
  }
}

TEST(PyTorchHook, AnotherRankOfTheSameSizeIsAContradiction) {
  Environment step = recorded("srun", 3);
  EXPECT_THAT(refusal(with(step, kHook + " RANK=2")),
              AllOf(HasSubstr("RANK=2"), HasSubstr("SLURM_PROCID=3")));
  EXPECT_THAT(refusal(with(step, kHook + " LOCAL_RANK=0")),
              AllOf(HasSubstr("LOCAL_RANK=0"), HasSubstr("SLURM_LOCALID=1")));
  EXPECT_THAT(refusal(with(step, kHook + " RANK=2 LOCAL_WORLD_SIZE=2")),
              HasSubstr("SLURM_PROCID=3"));
}

TEST(SlurmStep, ThatContradictsItselfIsRefused) {
  Environment step = recorded("srun", 3);
  for (const char* change : {"SLURM_STEP_NUM_TASKS=5", "SLURM_STEP_TASKS_PER_NODE=4",
                             "SLURM_STEP_NODELIST=node[1-3]", "SLURM_STEP_NUM_NODES=3",
                             "SLURM_STEP_TASKS_PER_NODE=2,1,1", "SLURM_STEP_NODELIST=node[2,1]"})
    EXPECT_THAT(refusal(with(step, change)), HasSubstr("Slurm contradicts itself")) << change;
  EXPECT_THAT(refusal(with(step, "PMI_RANK=0 PMI_SIZE=8")), HasSubstr("PMI_SIZE=8"));
}

TEST(SlurmStep, ThatIsNotWholeOrDamagedIsRefused) {
  Environment step = recorded("srun", 3);
  for (const char* name : {"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_STEP_NODELIST",
                           "SLURM_STEP_TASKS_PER_NODE", "SLURM_STEP_NUM_NODES"})
    EXPECT_THAT(refusal(with(step, concat(name, "="))), HasSubstr(concat("not ", name)));
  for (const char* change :
       {"SLURM_PROCID=4", "SLURM_PROCID=-1", "SLURM_PROCID=x", "SLURM_LOCALID=2", "SLURM_NODEID=2",
        "SLURM_STEP_NUM_TASKS=0", "SLURM_PROCID=99999999999999999999", "SLURM_STEP_ID=x"})
    EXPECT_THAT(refusal(with(step, change)), HasSubstr(change)) << change;
}

// srun -E hands on SLURM_NTASKS of the job; srun -m arbitrary may have task 0 on any node.
TEST(SlurmStep, MayHaveMoreTasksThanTheJobAndBeginOnAnyNode) {
  EXPECT_EQ(process_info(with(recorded("srun", 0), "SLURM_NTASKS=1"), "node1").size, 4);
  Environment arbitrary =
      with(recorded("srun_one_task", 0),
           "SLURM_STEP_NUM_TASKS=3 SLURM_STEP_NUM_NODES=2 SLURM_STEP_NODELIST=node[1-2] "
           "SLURM_STEP_TASKS_PER_NODE=2,1 SLURM_NODEID=1 SLURMD_NODENAME=node2");
  EXPECT_EQ(process_info(arbitrary, "node2").size, 3);
}

TEST(SlurmStep, PortsDifferForStepsAndJobs) {
  Environment step = recorded("srun", 0);
  std::map<int, std::string> ports;
  for (int job = 100; job < 110; ++job)
    for (int number = 0; number < 10; ++number) {
      std::string ids = concat("SLURM_JOB_ID=", job, " SLURM_STEP_ID=", number);
      int port = process_info(with(step, ids), "node1").rendezvous_port;
      EXPECT_TRUE(ports.try_emplace(port, ids).second) << ids << " and " << ports[port];
    }
}

const std::string kTorchrun =
    "RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 GROUP_RANK=1 GROUP_WORLD_SIZE=2 "
    "MASTER_ADDR=node1 MASTER_PORT=29500 TORCHELASTIC_RUN_ID=77 TORCHELASTIC_RESTART_COUNT=2";

TEST(Torchrun, IsRead) {
  EXPECT_EQ(describe(process_info(of(kTorchrun), "node2")),
            "rank=5 size=8 local_rank=1 local_size=4 node=1 num_nodes=2 host=node2 life=77.2 "
            "launcher='torchrun' meet='node1:29500'");
}

TEST(Torchrun, WinsOverTheStepThatStartedIt) {
  ProcessInfo info = process_info(with(recorded("srun_one_task", 0), kTorchrun), "node1");
  EXPECT_EQ(info.rank, 5);
  EXPECT_EQ(info.launcher, "torchrun");
}

TEST(Torchrun, ItsOwnStoreKeepsItsPort) {
  Environment env = with(of(kTorchrun), "TORCHELASTIC_USE_AGENT_STORE=True");
  EXPECT_EQ(process_info(env, "node2").rendezvous_port, 29501);
}

TEST(Torchrun, ThatIsNotWholeIsRefused) {
  for (const char* name :
       {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})
    EXPECT_THAT(refusal(with(of(kTorchrun), concat(name, "="))), HasSubstr(concat("not ", name)));
}

TEST(ByHand, NeedsAllOfTheSet) {
  EXPECT_THAT(refusal(of("RANK=1 WORLD_SIZE=2 LOCAL_RANK=1")),
              HasSubstr("not LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT"));
  EXPECT_THAT(refusal(of("RANK=1")), HasSubstr("not WORLD_SIZE"));
  ProcessInfo one = process_info(of("RANK=0 WORLD_SIZE=1 LOCAL_RANK=0"), "here");
  EXPECT_EQ(one.size, 1);
  EXPECT_THAT(refusal(of("RANK=1 WORLD_SIZE=1 LOCAL_RANK=0")), HasSubstr("RANK=1"));
}

TEST(ByHand, AWholeSetIsUsed) {
  ProcessInfo info = process_info(of("RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 "
                                     "MASTER_ADDR=here MASTER_PORT=1234"),
                                  "here");
  EXPECT_EQ(info.rank, 1);
  EXPECT_EQ(info.num_nodes, 1);
  EXPECT_EQ(info.rendezvous_port, 1234);
}

const std::string kExplicit =
    "NEOX_RANK=1 NEOX_WORLD_SIZE=3 NEOX_LOCAL_RANK=0 NEOX_LOCAL_SIZE=2 NEOX_MASTER=[::1]:4000";

TEST(Explicit, WinsOverEverything) {
  for (const Environment& below :
       {recorded("srun", 3), recorded("mpirun", 2), of(kTorchrun), recorded("batch_shell", 0)}) {
    ProcessInfo info = process_info(with(below, kExplicit), "node2");
    EXPECT_EQ(info.rank, 1);
    EXPECT_EQ(info.size, 3);
    EXPECT_EQ(info.rendezvous_host, "::1");
    EXPECT_EQ(info.rendezvous_port, 4000);
  }
}

TEST(Mpirun, AMasterThatIsNamedIsWhereRanksMeet) {
  ProcessInfo info =
                  process_info(with(recorded("mpirun", 2), "NEOX_MASTER=10.0.0.5:15000"), "node2"),
              without = process_info(recorded("mpirun", 2), "node2");
  EXPECT_EQ(info.rank, without.rank);
  EXPECT_EQ(info.size, without.size);
  EXPECT_EQ(info.rendezvous_host, "10.0.0.5");
  EXPECT_EQ(info.rendezvous_port, 15000);
  EXPECT_FALSE(info.pmix);  // it would tell another place
}

TEST(Explicit, NeedsAllOfTheSet) {
  for (const char* name :
       {"NEOX_RANK", "NEOX_WORLD_SIZE", "NEOX_LOCAL_RANK", "NEOX_LOCAL_SIZE", "NEOX_MASTER"})
    EXPECT_THAT(refusal(with(of(kExplicit), concat(name, "="))), HasSubstr(concat("not ", name)));
  for (const char* master : {"here", ":4000", "here:", "here:0", "here:65536", "here:x"})
    EXPECT_THAT(refusal(with(of(kExplicit), concat("NEOX_MASTER=", master))),
                HasSubstr("NEOX_MASTER"));
}

TEST(Slurm, AMasterThatIsNamedIsWhereRanksMeet) {
  for (const char* more : {"", " RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 MASTER_ADDR=node9"}) {
    Environment env = with(recorded("srun", 3), concat("NEOX_MASTER=10.0.0.5:15000", more));
    ProcessInfo info = process_info(env, "node2"),
                without = process_info(recorded("srun", 3), "node2");
    EXPECT_EQ(info.rank, without.rank);
    EXPECT_EQ(info.size, without.size);
    EXPECT_EQ(info.rendezvous_host, "10.0.0.5");
    EXPECT_EQ(info.rendezvous_port, 15000);
    EXPECT_FALSE(info.pmix);
  }
  for (const Environment& other : {Environment{}, of(kTorchrun)})
    EXPECT_THAT(refusal(with(other, "NEOX_MASTER=10.0.0.5:15000")), HasSubstr("not NEOX_RANK"));
}

TEST(Mpirun, WithoutAServerToMeetAtIsRefused) {
  EXPECT_THAT(refusal(with(recorded("mpirun", 2), "PMIX_NAMESPACE=")), HasSubstr("PMIx"));
}

TEST(Mpirun, OfAnotherMpiIsRefused) {
  EXPECT_THAT(refusal(of("PMI_RANK=1 PMI_SIZE=4")), HasSubstr("PMI_SIZE=4"));
}

TEST(Life, TellsStepsRestartsAndLaunchersApart) {
  Environment step = recorded("srun", 3), mpirun = recorded("mpirun", 2);
  std::string job = step["SLURM_JOB_ID"], id = step["SLURM_STEP_ID"];
  EXPECT_EQ(life_of_job(step), concat(job, ".", id, ".0"));
  EXPECT_EQ(life_of_job(with(step, "SLURM_RESTART_COUNT=2")), concat(job, ".", id, ".2"));
  EXPECT_EQ(life_of_job(mpirun),
            concat(mpirun["SLURM_JOB_ID"], ".", mpirun["PMIX_NAMESPACE"], ".0"));
  EXPECT_EQ(life_of_job(with(of(kExplicit), "NEOX_LIFE=a/b")), "a-b");
  EXPECT_NE(life_of_job(of(kExplicit)), life_of_job(with(of(kExplicit), "NEOX_MASTER=here:4001")));
  EXPECT_EQ(life_of_job(recorded("het_group", 0)), life_of_job(recorded("het_group", 3)));
}

}  // namespace
}  // namespace neox
