// What GCC's static libstdc++ takes from the C library of the build machine, and older ones lack.
#include <sys/random.h>

static_assert(__GLIBC__ == 2 && __GLIBC_MINOR__ <= 31,
              "These are not the headers of the older C library.");

extern "C" {
// glibc 2.32: whether only one thread runs. False is always right.
char __libc_single_threaded = 0;

// glibc 2.36: a random number, for std::random_device.
unsigned arc4random() noexcept {
  unsigned value = 0;
  while (getrandom(&value, sizeof value, 0) != sizeof value) {
  }
  return value;
}
}
