#include "hostile/byte_damage.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "hostile/folder_state.h"

namespace leq::hostile {
namespace {

namespace fs = std::filesystem;

const std::vector<std::uint64_t>& edges() {
  static const std::vector<std::uint64_t> kEdges = {0,
                                                    1,
                                                    63,
                                                    64,
                                                    0x7fffffffu,
                                                    0x80000000u,
                                                    0xffffffffu,
                                                    0x100000000u,
                                                    0x7fffffffffffffffu,
                                                    0x8000000000000000u,
                                                    0xffffffffffffffc0u,
                                                    0xffffffffffffffffu};
  return kEdges;
}

std::size_t near_boundary(const std::vector<std::size_t>& boundaries, std::size_t size,
                          Dice& dice) {
  if (boundaries.empty() || dice.chance(0.3)) return dice.below(size);
  const std::size_t at = dice.of(boundaries) + dice.below(3);
  return std::min(at == 0 ? 0 : at - 1, size - 1);
}

std::string garbage(std::size_t size, Dice& dice) {
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(dice.bits() >> 32);
  return bytes;
}

}  // namespace

DamagedBytes damage_bytes(const std::string& bytes, const std::vector<std::size_t>& boundaries,
                          Dice& dice) {
  DamagedBytes damaged = {bytes, "", 0, 0};
  const std::size_t at = near_boundary(boundaries, bytes.size(), dice);
  const auto number = [](std::size_t value) { return std::to_string(value); };
  switch (dice.below(8)) {
    case 0:
    case 1:
      damaged.bytes.resize(at);
      damaged.first = at;
      damaged.last = std::string::npos;
      damaged.what = "cut to " + number(at) + " of " + number(bytes.size()) + " bytes";
      break;
    case 2: {
      const std::size_t more = 1 + dice.below(200);
      damaged.bytes += dice.chance(0.5) ? garbage(more, dice) : std::string(more, '\0');
      damaged.first = bytes.size();
      damaged.last = std::string::npos;
      damaged.what = number(more) + " bytes after the end";
      break;
    }
    case 3: {
      const std::size_t place = std::min(at, bytes.size() < 8 ? 0 : bytes.size() - 8);
      const std::uint64_t edge = dice.of(edges());
      const std::size_t width = std::min<std::size_t>(dice.chance(0.5) ? 8 : 4, bytes.size());
      std::memcpy(damaged.bytes.data() + place, &edge, width);
      damaged.first = place;
      damaged.last = place + width;
      damaged.what = number(edge) + " at " + number(place);
      break;
    }
    case 4: {
      const std::size_t count = std::min<std::size_t>(1 + dice.below(64), bytes.size() - at);
      std::fill_n(damaged.bytes.begin() + static_cast<std::ptrdiff_t>(at), count,
                  dice.chance(0.5) ? '\0' : '\xff');
      damaged.first = at;
      damaged.last = at + count;
      damaged.what = number(count) + " bytes filled at " + number(at);
      break;
    }
    case 5: {
      const std::size_t count = std::min<std::size_t>(1 + dice.below(16), bytes.size() - at);
      damaged.bytes.erase(at, count);
      damaged.first = at;
      damaged.last = std::string::npos;
      damaged.what = number(count) + " bytes left out at " + number(at);
      break;
    }
    default: {
      const auto bit = static_cast<int>(dice.below(8));
      damaged.bytes[at] = static_cast<char>(damaged.bytes[at] ^ (1 << bit));
      damaged.first = at;
      damaged.last = at + 1;
      damaged.what = "bit " + std::to_string(bit) + " of byte " + number(at);
    }
  }
  // The edge value may equal the original value, so that nothing is damaged.
  if (damaged.bytes == bytes) damaged.first = damaged.last = 0;
  return damaged;
}

std::string place_name(Place place) {
  switch (place) {
    case Place::missing:
      return "missing";
    case Place::empty:
      return "empty";
    case Place::folder:
      return "folder";
    case Place::pipe:
      return "pipe";
    case Place::no_right:
      return "mode 0";
    case Place::link:
      return "link";
    case Place::link_nowhere:
      return "link to nothing";
    case Place::link_in_a_ring:
      return "link to itself";
    case Place::null_device:
      return "null device";
    case Place::zero_device:
      return "zero device";
    case Place::garbage:
      return "garbage";
  }
  return "";
}

void put_in_place(Place place, const fs::path& path, Dice& dice) {
  const fs::path aside = path.string() + ".real";
  const bool stays = place == Place::no_right || place == Place::link;
  if (!stays && fs::is_directory(path)) fs::remove_all(path);
  switch (place) {
    case Place::empty:
      return write_bytes(path, "");
    case Place::garbage:
      return write_bytes(path, garbage(1 + dice.below(5000), dice));
    case Place::no_right:
      return fs::permissions(path, fs::perms::none);
    case Place::link:
      fs::rename(path, aside);
      return fs::create_symlink(aside.filename(), path);
    default:
      break;
  }
  fs::remove(path);
  switch (place) {
    case Place::folder:
      fs::create_directory(path);
      return;
    case Place::pipe:
      if (::mkfifo(path.c_str(), 0600) != 0) throw std::runtime_error("mkfifo " + path.string());
      return;
    case Place::link_nowhere:
      return fs::create_symlink("nowhere", path);
    case Place::link_in_a_ring:
      return fs::create_symlink(path.filename(), path);
    case Place::null_device:
      return fs::create_symlink("/dev/null", path);
    case Place::zero_device:
      return fs::create_symlink("/dev/zero", path);
    default:
      return;
  }
}

}  // namespace leq::hostile
