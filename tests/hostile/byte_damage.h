// Ways to damage bytes, and to replace a plain file by something else.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "hostile/dice.h"

namespace leq::hostile {

struct DamagedBytes {
  std::string bytes;
  std::string what;       // "cut to 63 bytes"
  std::size_t first = 0;  // changed range [first, last); last = npos if the size changed
  std::size_t last = 0;
  bool size_changed() const { return last == std::string::npos; }
};

// `boundaries` are offsets at which one part of the file ends and the next begins.
DamagedBytes damage_bytes(const std::string& bytes, const std::vector<std::size_t>& boundaries,
                          Dice& dice);

enum class Place : std::uint8_t {
  missing,
  empty,
  folder,
  pipe,          // without a peer at its other end
  no_right,      // a file of mode 0
  link,          // to the complete file: must be accepted
  link_nowhere,  // dangling
  link_in_a_ring,
  null_device,
  zero_device,
  garbage,
};
inline constexpr Place kPlaces[] = {Place::missing,      Place::empty,          Place::folder,
                                    Place::pipe,         Place::no_right,       Place::link,
                                    Place::link_nowhere, Place::link_in_a_ring, Place::null_device,
                                    Place::zero_device,  Place::garbage};
std::string place_name(Place place);

// `path` is a plain file or a folder.
void put_in_place(Place place, const std::filesystem::path& path, Dice& dice);

}  // namespace leq::hostile
