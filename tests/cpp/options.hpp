/* Parts of objects.cpp: results keep their comparators, and every member of an option has an effect. */
#ifndef FTSORT_TESTS_OPTIONS_HPP
#define FTSORT_TESTS_OPTIONS_HPP

#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

#include "expect.hpp"

template <class T>
T value(ftsort::expected<T> result)
{
  EXPECT(result.has_value());
  return std::move(result).value();
}
inline void value(const ftsort::expected<void> &result)
{
  EXPECT(result.has_value());
  result.value();
}

using group = ftsort::nothrow_group;

/* A result keeps the comparator of its records, which later calls with it need. */
static void comparators(const group &g, const std::vector<star> &mine)
{
  const auto owner = std::make_shared<int>(0);
  const auto backwards = [owner](const star &a, const star &b) { return a.number > b.number; };
  const auto order = ftsort::order<star>::of(backwards);
  long kept = owner.use_count();
  const auto result = value(g.sort(mine, backwards));
  EXPECT(owner.use_count() == ++kept);
  const auto many = value(g.sort_many(std::vector<ftsort::view<const star>>{mine}, backwards));
  EXPECT(owner.use_count() == ++kept);
  const auto of_input = value(g.sort(value(g.protect(mine, backwards))));
  EXPECT(owner.use_count() == ++kept);
  const auto in_other_order = value(g.sort(value(g.protect(mine, &star::number)), backwards));
  EXPECT(owner.use_count() == ++kept);
  for (const ftsort::sorted<star> *one : {&result, &many[0], &of_input, &in_other_order})
    EXPECT(value(g.verify(*one, mine)) == 0);
  const auto wrapped = value(g.result_of(result.dense(), backwards));
  EXPECT(owner.use_count() == ++kept);
  const auto keys = value(g.sort_by_key(mine, mine, backwards));
  EXPECT(owner.use_count() == ++kept);
  const auto distinct = value(g.unique(mine, backwards));
  EXPECT(owner.use_count() == ++kept);
  const auto counts = value(g.group_by(mine, ftsort::order<star>::of(backwards), ftsort::count()));
  EXPECT(owner.use_count() == ++kept);
}

static void members_of_options()
{
  ftsort::rounds algorithm;
  algorithm.ascending = true;
  algorithm.share_limit = 5;
  algorithm.store_every = 6;
  ftsort_rounds rounds = algorithm.native();
  EXPECT(rounds.ascending == 1 && rounds.begin_all == 0 && rounds.share_limit == 5 && rounds.store_every == 6);
  algorithm.ascending = false;
  algorithm.begin_all = true;
  algorithm.plan = {{0, 0}, {1, ftsort::share_all}};
  rounds = algorithm.native();
  EXPECT(rounds.ascending == 0 && rounds.begin_all == 1 && rounds.round_count == 2 && rounds.plan[1].dimension == 1);

  ftsort::tree options;
  ftsort_tree_options tree = options.native();
  EXPECT(tree.has_sink == 0 && tree.ordered == 0 && tree.detect_ms == 0 && tree.link_count == 0);
  options.sink = 3;
  options.key = FTSORT_KEY_U16;
  options.ordered = true;
  options.detect_ms = 7;
  options.links = {{0, 1}, {2, 4}};
  tree = options.native();
  EXPECT(tree.has_sink == 1 && tree.sink == 3 && tree.key == FTSORT_KEY_U16 && tree.ordered == 1);
  EXPECT(tree.detect_ms == 7 && tree.link_count == 2 && tree.links[2] == 2 && tree.links[3] == 4);
}

/* Sorts a file behind a header into two files, and resumes complete sorts. All ranks are on one host. */
static void files_of_external_sorts(const group &g, const std::vector<star> &all)
{
  int number = getpid();
  MPI_Bcast(&number, 1, MPI_INT, 0, MPI_COMM_WORLD);
  const std::string folder = "/tmp/ftsort-objects-" + std::to_string(number);
  if (g.rank() == 0) {
    EXPECT(mkdir(folder.c_str(), 0700) == 0);
    std::FILE *file = std::fopen((folder + "/in").c_str(), "wb");
    const std::vector<star> backwards(all.rbegin(), all.rend());
    EXPECT(std::fwrite("header", 1, 6, file) == 6);
    EXPECT(std::fwrite(backwards.data(), sizeof(star), all.size(), file) == all.size() && std::fclose(file) == 0);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  ftsort::external files;
  files.sources = {folder + "/in"};
  files.output = folder + "/out";
  files.scratch = {folder};
  files.source_offset = 6;
  files.output_offset = 4;
  files.output_parts = 2;
  files.resume = true;
  EXPECT(value(ftsort::external_sort<star>(g, files, &star::number)).resumed_records == 0);
  std::size_t place = 0;
  for (const char *part : {"/out.00000", "/out.00001"}) {
    std::FILE *file = std::fopen((folder + part).c_str(), "rb");
    EXPECT(file != nullptr && std::fseek(file, 4, SEEK_SET) == 0);
    for (star found; std::fread(&found, sizeof found, 1, file) == 1; place++) EXPECT(same_star(found, all.at(place)));
    std::fclose(file);
  }
  EXPECT(place == all.size());
  EXPECT(value(ftsort::external_sort<star>(g, files, &star::number)).resumed_records == all.size());
  files.resume = false;
  EXPECT(value(ftsort::external_sort<star>(g, files, &star::number)).resumed_records == 0);

  ftsort::external numbered;
  numbered.output = folder + "/numbered";
  numbered.resume = true;
  numbered.identity = 1;
  numbered.bytes = all.size() * sizeof(star);
  numbered.read = [&](std::uint64_t position, void *buffer, std::size_t bytes) {
    std::memcpy(buffer, reinterpret_cast<const unsigned char *>(all.data()) + position, bytes);
    return true;
  };
  value(ftsort::external_sort<star>(g, numbered, &star::number));
  numbered.identity = 2;
  const auto other = ftsort::external_sort<star>(g, numbered, &star::number);
  EXPECT(!other && other.error().status() == FTSORT_ERR_ARGUMENT);
  MPI_Barrier(MPI_COMM_WORLD);
  for (const char *file : {"/in", "/out.00000", "/out.00001", "/numbered", "/numbered.ftsort", ""})
    if (g.rank() == 0) EXPECT(std::remove((folder + file).c_str()) == 0);
}

#endif
