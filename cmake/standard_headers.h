// Precompiled: parsing these again in every file costs more than a third of a build. A file includes
// what it uses all the same; the presets asan, tsan and portable compile without this header.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>
