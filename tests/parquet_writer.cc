// Writes the JSON lines of its standard input as a Parquet or Arrow file to its standard output, by
// Apache Arrow: a program of its own, since libparquet has symbols of a simdjson that is not ours.
// Usage: parquet_writer [NAME=VALUE ...]
//   arrow=stream         Arrow's format for streams, or arrow=file
//   compression=snappy   as Arrow names it (of Arrow none, zstd or lz4)
//   rows=N               in a group
//   pages=2              data pages of version 2
//   dictionary=no
//   encoding=delta       of the column text, without dictionary: DELTA_LENGTH_BYTE_ARRAY
//   checksums=yes        of pages
//   type:COLUMN=TYPE     where it is not that of the JSON
#include <arrow/io/memory.h>
#include <arrow/ipc/writer.h>
#include <arrow/json/api.h>
#include <arrow/table.h>
#include <arrow/util/compression.h>
#include <parquet/arrow/writer.h>

#include <iostream>
#include <iterator>
#include <map>

namespace {

using Options = std::map<std::string, std::string>;

template <class T>
T value_of(arrow::Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.status().ToString());
  return std::move(result).ValueUnsafe();
}

void check(const arrow::Status& status) {
  if (!status.ok()) throw std::runtime_error(status.ToString());
}

std::shared_ptr<arrow::DataType> type_of(const std::string& name) {
  static const std::map<std::string, std::shared_ptr<arrow::DataType>> types = {
      {"uint8", arrow::uint8()},   {"float", arrow::float32()},
      {"binary", arrow::binary()}, {"large_utf8", arrow::large_utf8()},
      {"date32", arrow::date32()}, {"timestamp", arrow::timestamp(arrow::TimeUnit::MILLI)}};
  return types.at(name);
}

std::shared_ptr<arrow::Table> table_of(const std::string& json_lines, const Options& options) {
  auto parse = arrow::json::ParseOptions::Defaults();
  auto read = arrow::json::ReadOptions::Defaults();
  read.block_size = 64 << 20;  // a line is not longer
  arrow::FieldVector fields;
  for (const auto& [name, type] : options)
    if (name.starts_with("type:")) fields.push_back(arrow::field(name.substr(5), type_of(type)));
  if (!fields.empty()) parse.explicit_schema = arrow::schema(fields);
  auto input = std::make_shared<arrow::io::BufferReader>(arrow::Buffer::FromString(json_lines));
  auto reader =
      value_of(arrow::json::TableReader::Make(arrow::default_memory_pool(), input, read, parse));
  return value_of(reader->Read());
}

std::shared_ptr<parquet::WriterProperties> properties_of(Options options) {
  parquet::WriterProperties::Builder builder;
  bool delta = options.count("encoding") > 0;
  if (!options.count("compression")) options["compression"] = "snappy";
  builder.compression(value_of(arrow::util::Codec::GetCompressionType(options["compression"])));
  builder.data_page_version(options.count("pages") ? parquet::ParquetDataPageVersion::V2
                                                   : parquet::ParquetDataPageVersion::V1);
  if (delta || options.count("dictionary")) builder.disable_dictionary();
  if (delta) builder.encoding("text", parquet::Encoding::DELTA_LENGTH_BYTE_ARRAY);
  if (options.count("checksums")) builder.enable_page_checksum();
  return builder.build();
}

void write_parquet(const arrow::Table& table, int64_t rows, const Options& options,
                   const std::shared_ptr<arrow::io::OutputStream>& sink) {
  check(parquet::arrow::WriteTable(
      table, arrow::default_memory_pool(), sink, rows, properties_of(options),
      parquet::ArrowWriterProperties::Builder().store_schema()->build()));
}

void write_arrow(const arrow::Table& table, int64_t rows, const Options& options,
                 const std::shared_ptr<arrow::io::OutputStream>& sink) {
  auto write = arrow::ipc::IpcWriteOptions::Defaults();
  if (options.count("compression"))
    write.codec = value_of(arrow::util::Codec::Create(
        value_of(arrow::util::Codec::GetCompressionType(options.at("compression")))));
  auto writer = value_of(options.at("arrow") == "file"
                             ? arrow::ipc::MakeFileWriter(sink, table.schema(), write)
                             : arrow::ipc::MakeStreamWriter(sink, table.schema(), write));
  check(writer->WriteTable(table, rows));
  check(writer->Close());
}

}  // namespace

int main(int argc, char** argv) {
  std::ios::sync_with_stdio(false);
  Options options;
  for (int i = 1; i < argc; ++i) {
    std::string given = argv[i];
    options[given.substr(0, given.find('='))] = given.substr(given.find('=') + 1);
  }
  std::string lines{std::istreambuf_iterator<char>(std::cin), {}};
  int64_t rows = options.count("rows") ? std::stoll(options["rows"]) : 1 << 20;
  auto sink = value_of(arrow::io::BufferOutputStream::Create());
  auto write = options.count("arrow") ? write_arrow : write_parquet;
  write(*table_of(lines, options), rows, options, sink);
  std::cout << value_of(sink->Finish())->ToString();
  return std::cout.flush() ? 0 : 1;
}
