#include "prepare/input_files.h"

#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "prepare/byte_source.h"
#include "prepare/content.h"
#include "prepare/exclusion.h"
#include "prepare/input_stream.h"
#include "prepare/journal.h"
#include "prepare/wiki_articles.h"

namespace neox {
namespace {

constexpr const char* kNoStream =
    "can be read once, from its beginning to its end; ranks that share the input, a run that goes "
    "on and --train-tokenizer read it elsewhere and again. Write it to a file first, or name the "
    "file that it comes from: what is compressed or in an archive is read as it is";

// Its size and its time; none where it cannot be asked, as errno says.
std::optional<InputFile> look_at(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return std::nullopt;
  return InputFile{.path = path,
                   .bytes = info.st_size,
                   .modified = info.st_mtim.tv_sec * int64_t{1'000'000'000} + info.st_mtim.tv_nsec};
}

// Of the paths given, and of what directories hold.
class Finder {
 public:
  Finder(Separated separated, std::span<const std::string> own,
         const std::vector<std::string>& exclude)
      : separated_(separated), own_(own), exclusion_(exclude) {}

  // A file, a directory, or a pattern.
  void add(const std::string& path) {
    std::error_code error;
    bool pattern = path.find_first_of("*?[") != std::string::npos && !fs::exists(path, error);
    if (!pattern) return add_path(path);
    glob_t found = {};
    int code = ::glob(path.c_str(), GLOB_ERR, nullptr, &found);
    std::string why = describe_errno(errno);
    std::vector<std::string> paths(found.gl_pathv, found.gl_pathv + found.gl_pathc);
    ::globfree(&found);
    check_io(code != GLOB_NOMATCH, "no input ", path, ": no file has such a name");
    check_io(code == 0, "no input ", path, ": a directory cannot be read: ", why);
    for (const std::string& one : paths)
      if (!exclusion_.takes(fs::path(one).filename().string()) && !is_own(one) &&
          !is_unfinished(one))
        add_path(one);
  }

  InputFiles take() {
    exclusion_.report("");
    using enum InputFile::Packing;
    auto is_archive = [](const InputFile& file) {
      return file.packing == kTar || file.packing == kZip;
    };
    if (std::ranges::none_of(result_.files, is_archive))
      for (const std::string& pattern : exclusion_.idle())
        log_warning("--exclude '", pattern, "' leaves out nothing: no name in a directory or by a ",
                    "pattern of the input is such a one");
    return std::move(result_);
  }

 private:
  enum class Named { kNo, kYes };

  void add_path(const std::string& path) {
    check_io(path != "-" || is_found(path), "--input - is the standard input, which ", kNoStream);
    check_io(is_found(path), "no input ", path, ": there is no such file or directory");
    if (!fs::is_directory(path)) return add_file(path, Named::kYes);
    std::vector<std::string> found;
    list(path, "", {}, found);
    std::sort(found.begin(), found.end());
    size_t before = result_.files.size();
    for (const std::string& file : found)
      if (!is_own(file)) add_file(file, Named::kNo);
    drop_text_beside_rows(before);
  }

  // Of a directory, whose files are those from `first` on: a README is no document of a dataset.
  void drop_text_beside_rows(size_t first) {
    using enum InputFile::Packing;
    auto begin = result_.files.begin() + static_cast<ptrdiff_t>(first);
    auto has_rows = [](const InputFile& file) { return file.packing == kColumnar; };
    if (std::none_of(begin, result_.files.end(), has_rows)) return;
    auto is_text = [&](const InputFile& file) {
      bool text = file.packing == kNone &&
                  (file.format == InputFile::Format::kText || describes_rows(file.path));
      if (text) log_info("left out: ", file.path, ", which is text beside Parquet or Arrow");
      if (text) result_.bytes -= file.bytes;
      return text;
    };
    result_.files.erase(std::remove_if(begin, result_.files.end(), is_text), result_.files.end());
  }

  // Of the same name, and the same file: most names are other ones.
  bool is_own(const std::string& path) const {
    bool own = std::ranges::any_of(own_, [&](const fs::path& file) {
      return fs::path(path).filename() == file.filename() && same_place(path, file);
    });
    if (own) log_info("left out: ", path, ", which is of the tokenizer");
    return own;
  }

  // What a download has noted, and what a run that was killed, of this program or another one, has
  // left. The download itself would be a text that ends somewhere.
  static bool is_unfinished(const std::string& path) {
    std::error_code error;
    check_io(!path.ends_with(".part") || !fs::exists(path + ".from", error), path,
             " is a download that is not whole: the command that fetches it goes on with it; "
             "or remove it and ",
             path, ".from");
    if (path.ends_with(".part.from")) return true;
    size_t number = path.find_last_not_of("0123456789") + 1;
    bool left = number < path.size() && path.substr(0, number).ends_with(".tmp-");
    if (left) log_info("left out: ", path, ", which a run that was killed has not finished");
    return left;
  }

  // What Hugging Face's datasets says of the Arrow files beside it.
  static bool describes_rows(const fs::path& path) {
    std::string name = path.filename();
    return name == "dataset_info.json" || name == "dataset_dict.json" || name == "state.json";
  }

  // What that library keeps of a map() or filter(): the rows of other files once more.
  static bool is_cached(const fs::path& path) {
    std::string name = path.filename();
    bool cached = name.starts_with("cache-") && name.ends_with(".arrow");
    if (cached) log_info("left out: ", path.string(), ", which datasets keeps of a map or filter");
    return cached;
  }

  // What a run that was killed has left beside its output, and what Spark and Hugging Face write
  // beside Parquet.
  static bool is_note(const std::string& name) {
    return name.find(kJournal) != name.npos || name.find(kTemplates) != name.npos ||
           name == "_metadata" || name == "_common_metadata" || name == "_SUCCESS" ||
           name == "dataset_infos.json";
  }

  // The files of a directory, which is `below` the one given, and of those below it. A link that
  // leads back to one of the directories above it is not followed.
  void list(const fs::path& dir, const std::string& below, std::set<fs::path> above,
            std::vector<std::string>& found) {
    if (!above.insert(fs::canonical(dir)).second) return;
    std::error_code error, gone;
    for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
      std::string name = it->path().filename();
      if (name.starts_with('.') || is_note(name) || exclusion_.takes(below + name)) continue;
      if (it->is_directory(gone)) list(it->path(), below + name + "/", above, found);
      if (it->is_regular_file(gone) && !is_unfinished(it->path()) && !is_cached(it->path()))
        found.push_back(it->path().string());
      check_io(!it->is_symlink(gone) || fs::exists(it->path(), gone), it->path().string(),
               " is a link to something that is not there; mend it or remove it");
    }
    check_io(!error, "cannot read the directory ", dir.string(), ": ",
             describe_errno(error.value()));
  }

  void add_file(const std::string& path, Named named) {
    bool stream = fs::is_fifo(path) || fs::is_character_file(path) || fs::is_socket(path);
    check_io(!stream, path, " is a stream, which ", kNoStream);
    check_io(fs::is_regular_file(path), path, " is neither a file nor a directory");
    // A link beside its target, as Debian's fortunes have them, is the same text.
    if (named == Named::kNo && !seen_.insert(fs::canonical(path)).second) return;
    std::optional<InputFile> found = look_at(path);
    check_call(found.has_value(), "look at", path);
    InputFile& file = *found;
    if (!look_into(file)) {
      check_io(named == Named::kNo, path, " is not text: it has bytes of value 0");
      result_.left_out.push_back(path);
      return;
    }
    result_.bytes += file.bytes;
    result_.files.push_back(std::move(file));
  }

  // Finds its packing and its format; false where it is binary.
  bool look_into(InputFile& file) const {
    using Packing = InputFile::Packing;
    std::string name = file.path, head(kHeadBytes, '\0');
    FileSource source(file.path, 0, file.bytes);
    head.resize(read_fully(source, head));
    file.packing = packing_of(name, head);
    if (file.packing == Packing::kCompressed) {
      head = read_head(file);
      name = decompressed_name(name);
      Packing inner = packing_of(name, head);
      if (inner == Packing::kTar) file.packing = inner;
      check_io(inner == Packing::kNone || inner == Packing::kTar, file.path,
               " is packed twice; unpack it once first");
    }
    if (file.packing == Packing::kTar || file.packing == Packing::kZip) return true;
    if (file.packing == Packing::kColumnar) {
      file.format = InputFile::Format::kJsonLines;
      return true;
    }
    check_is_text(name, head);
    if (is_left_out(name, head)) return false;
    file.format = format_of(name, head, separated_);
    return true;
  }

  Separated separated_;
  std::span<const std::string> own_;
  Exclusion exclusion_;
  std::set<fs::path> seen_;
  InputFiles result_;
};

}  // namespace

InputFiles find_input_files(std::span<const std::string> paths, Separated separated,
                            std::span<const std::string> own,
                            const std::vector<std::string>& exclude) {
  Finder finder(separated, own, exclude);
  for (const std::string& path : paths) {
    std::error_code error;
    if (fs::exists(path, error)) {
      finder.add(path);
      continue;
    }
    for (const std::string& part : split(path, ','))
      if (!trim(part).empty()) finder.add(std::string(trim(part)));
  }
  InputFiles found = finder.take();
  check_io(!found.files.empty(), "no text in ", join(paths, ", "), ": ",
           found.left_out.empty() ? "no file is there" : "all files there are binary");
  return found;
}

ChangedFiles changed_files(const InputFiles& input) {
  ChangedFiles found;
  for (const InputFile& file : input.files) {
    std::optional<InputFile> now = look_at(file.path);
    if (!now) continue;
    if (now->bytes != file.bytes)
      found.other_size.push_back(file.path);
    else if (now->modified != file.modified)
      found.other_time.push_back(file.path);
  }
  return found;
}

void describe_input(const InputFiles& input) {
  auto kind = [](const InputFile& file) {
    using enum InputFile::Packing;
    bool archive = file.packing == kTar || file.packing == kZip;
    return file.packing == kColumnar ? 5 : archive ? 4 : static_cast<int>(file.format);
  };
  struct Kind {
    const char *noun, *of;
  };
  constexpr Kind kKinds[] = {
      {"file", " of JSON lines"}, {"file", " of text"}, {"wiki dump", ""},
      {"JSON array", ""},         {"archive", ""},      {"file", " of Parquet or Arrow"}};
  std::vector<std::string> parts;
  for (int k = 0; k < std::ssize(kKinds); ++k)
    if (auto n = std::count_if(input.files.begin(), input.files.end(),
                               [&](const InputFile& file) { return kind(file) == k; }))
      parts.push_back(counted(n, kKinds[k].noun) + kKinds[k].of);
  log_info("input: ", human_bytes(static_cast<double>(input.bytes)), ", ", join(parts, ", "));
  if (!input.left_out.empty())
    log_info("left out: ", counted(std::ssize(input.left_out), "binary file"), ", such as ",
             input.left_out.front());
}

}  // namespace neox
