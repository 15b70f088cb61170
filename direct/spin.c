// Whether a thread that waits spins or sleeps: the policy of src/spin/spin-policy.ts with the
// tuning of lanes, for each thread of the program.
#include "internal.h"

#include <sched.h>

static const int64_t assumed_wait_ns = 2000000, max_wait_ns = 20000000, worthwhile_ns = 1000000, spare_ns = 50000,
                     max_spin_ns = 300000, long_yield_ns = 1000000, first_back_off_ns = 5000000,
                     longest_back_off_ns = 1280000000, forget_back_off_ns = 10000000;
enum { SHARE = 8 };

struct policy {
  int64_t average_ns; // plus one, so that 0 says "not known yet"
  int64_t since_ns;   // when this wait began; 0 between waits
  int64_t back_off_until_ns, back_off_ns;
};

static __thread struct policy policy;

int64_t mr_now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000 + now.tv_nsec;
}

static int64_t average(void) {
  return policy.average_ns == 0 ? assumed_wait_ns : policy.average_ns - 1;
}

bool mr_may_spin(void) {
  const int64_t now = mr_now_ns();
  if (policy.since_ns == 0) policy.since_ns = now;
  if (now < policy.back_off_until_ns) return false;
  const int64_t most = 2 * average() + spare_ns;
  return average() < worthwhile_ns && now - policy.since_ns < (most < max_spin_ns ? most : max_spin_ns);
}

// Between two looks: programs that wait for this processor run first.
void mr_spun(void) {
  const int64_t before = mr_now_ns();
  for (int i = 0; i < 8; i++)
    __builtin_ia32_pause();
  sched_yield();
  const int64_t after = mr_now_ns();
  if (after - before < long_yield_ns) return;
  const int64_t longer = policy.back_off_ns * 2;
  const bool is_first = after - policy.back_off_until_ns >= forget_back_off_ns || policy.back_off_ns == 0;
  policy.back_off_ns = is_first ? first_back_off_ns : longer < longest_back_off_ns ? longer : longest_back_off_ns;
  policy.back_off_until_ns = after + policy.back_off_ns;
}

void mr_found(void) {
  if (policy.since_ns == 0) return;
  int64_t waited = mr_now_ns() - policy.since_ns;
  if (waited > max_wait_ns) waited = max_wait_ns;
  policy.average_ns = average() + (waited - average()) / SHARE + 1;
  policy.since_ns = 0;
}
