// What the rows that the ranks of a job bring must have in common. A row: number of ranks, host,
// process id, then names and values.
#pragma once
#include <span>
#include <string>

namespace neox {

// Two processes that are one rank.
std::string taken_twice(int rank, const std::string& first_row, const std::string& second_row);

// What differs, the value of most first, with the ranks and hosts that have each; empty: nothing.
std::string name_differences(std::span<const std::string> rows);

}  // namespace neox
