#include "prepare/wiki_articles.h"

#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <ctime>

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/text.h"
#include "data/output_file.h"
#include "prepare/together.h"

namespace neox {
namespace {

bool is_dump(const InputFile& file) { return file.format == InputFile::Format::kWiki; }

std::string site_info(const InputFile& file) {
  constexpr size_t kMostBytes = 4 << 20;
  auto stream = open_input(file, 0, file.bytes, {});
  stream->next_file();
  std::string head;
  for (std::string part(1 << 16, 0); head.find("</siteinfo>") == head.npos;) {
    size_t n = stream->read(part);
    check_io(n > 0 && head.size() < kMostBytes, file.path,
             ": this dump of MediaWiki has no <siteinfo>, which names its namespaces; fetch it "
             "again");
    head.append(part, 0, n);
  }
  return head;
}

wiki::Site site_of(const InputFiles& input) {
  wiki::Site site;
  const InputFile* first = nullptr;
  for (const InputFile& file : input.files) {
    if (!is_dump(file)) continue;
    wiki::Site found = wiki::read_site(site_info(file));
    if (!first) site = found, first = &file;
    check_usage(found.url == site.url, file.path, " is a dump of ", found.url, ", and ",
                first->path, " is one of ", site.url, "; prepare one wiki at a time");
  }
  return site;
}

// {{CURRENTYEAR}} and its like say when the dump was written, so that the same dump always gives
// the same text.
wiki::Clock clock_of(const InputFile& dump) {
  struct stat about = {};
  check_io(::stat(dump.path.c_str(), &about) == 0, "cannot look at ", dump.path);
  std::tm utc = {};
  ::gmtime_r(&about.st_mtime, &utc);
  auto form = [&](const char* format) {
    char text[16];
    return std::string(text, std::strftime(text, sizeof text, format, &utc));
  };
  return {form("%Y"), form("%m"), form("%d"), form("%H"), form("%H:%M:%S")};
}

// A page as read_pages() reads it.
void append_page(const wiki::Page& page, std::string& out) {
  out += concat("  <page>\n    <title>", page.title, "</title>\n    <ns>", page.ns,
                "</ns>\n    <id>", page.id, "</id>\n");
  if (page.redirect) out += "    <redirect />\n";
  out += "      <text>" + wiki::text_of(page) + "</text>\n  </page>\n";
}

fs::path templates_path(const std::string& scratch, int rank) {
  return concat(scratch, kTemplates, rank);
}

// The template pages of the share of this rank.
void write_templates(const InputFiles& input, const BlockRules& rules, const wiki::Site& site,
                     const fs::path& path, const Control& control, const std::atomic<bool>& stop) {
  BlockReader reader(slices_of(input, rules, control.rank(), control.size()), rules);
  OutputFile out(path, "unfinished");
  int64_t bytes = 0;
  auto progress = control.rank() > 0
                      ? nullptr
                      : std::make_unique<Progress>(Progress::Options{
                            .label = "templates",
                            .unit = "B",
                            .total = std::max<int64_t>(1, input.bytes / control.size())});
  std::string storage, pages;
  while (auto block = stop ? std::nullopt : reader.next()) {
    bytes += block->input_bytes;
    if (progress) progress->update(bytes);
    if (!is_dump(*block->file)) continue;
    pages.clear();
    for (const wiki::Page& page : wiki::read_pages(wiki::plain_lines(block->text, storage)))
      if (wiki::is_template(page, site)) append_page(page, pages);
    out.write(std::as_bytes(std::span(pages)));
  }
  if (progress) progress->finish();
  out.flush_to_disk();  // storage may say only then that it is full
  out.publish();
}

void read_templates(const fs::path& path, const wiki::Site& site, wiki::Templates& templates) {
  MappedFile file(path, MappedFile::Access::kSequential);
  constexpr size_t kAtOnce = 1 << 20;
  for (size_t at = 0, end = 0; at < file.text().size(); at = end) {
    end = wiki::next_page(file.text(), std::min(at + kAtOnce, file.text().size()));
    for (const wiki::Page& page : wiki::read_pages(file.text().substr(at, end - at)))
      templates.add(page, site);
  }
}

}  // namespace

std::shared_ptr<const WikiArticles> WikiArticles::gather(const InputFiles& input,
                                                         const BlockRules& rules,
                                                         const std::string& scratch,
                                                         Control& control) {
  auto dump = std::find_if(input.files.begin(), input.files.end(), is_dump);
  if (dump == input.files.end()) return nullptr;
  auto wiki = std::make_shared<WikiArticles>();
  fs::path mine = templates_path(scratch, control.rank());
  struct Gone {
    fs::path path;
    ~Gone() {
      std::error_code ignored;
      fs::remove(path, ignored);
    }
  } gone{mine};
  work_together(control, {.work = [&](const std::atomic<bool>& stop) {
                  wiki->site_ = site_of(input);
                  wiki->clock_ = clock_of(*dump);
                  make_directories(directory_of(mine));
                  write_templates(input, rules, wiki->site_, mine, control, stop);
                  return std::string();
                }});
  work_together(control, {.work = [&](const std::atomic<bool>&) {
                  for (int rank = 0; rank < control.size(); ++rank)
                    read_templates(templates_path(scratch, rank), wiki->site_, wiki->templates_);
                  return std::string();
                }});
  if (control.rank() == 0)
    log_info("a dump of ", wiki->site_.url, " with ",
             with_commas(static_cast<int64_t>(wiki->templates_.size())), " templates");
  return wiki;
}

std::unique_ptr<wiki::Extractor> WikiArticles::borrow() const {
  std::lock_guard lock(mutex_);
  if (idle_.empty()) return std::make_unique<wiki::Extractor>(site_, templates_, clock_);
  std::unique_ptr<wiki::Extractor> extractor = std::move(idle_.back());
  idle_.pop_back();
  return extractor;
}

void WikiArticles::give_back(std::unique_ptr<wiki::Extractor> extractor) const {
  std::lock_guard lock(mutex_);
  idle_.push_back(std::move(extractor));
}

const std::string* field_of(const wiki::Article& article, std::string_view name) {
  if (name == "text") return &article.text;
  if (name == "title") return &article.title;
  if (name == "url") return &article.url;
  if (name == "id") return &article.id;
  return name == "revid" ? &article.revid : nullptr;
}

}  // namespace neox
