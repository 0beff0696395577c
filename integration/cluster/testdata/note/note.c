// The job of the benchmark of starts: appends one line to a file, "NANOSECONDS TICK JOB", with the instant of its start by the
// clock of which ticks are instants. It is C, linked statically, since a program in Go takes three times as long to begin.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int main(void) {
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	const char *path = getenv("NOTE_FILE"), *tick = getenv("CRONCLAVE_TICK_UNIX"), *job = getenv("CRONCLAVE_JOB");
	if (!path || !tick || !job) return 2;
	char line[256];
	int n = snprintf(line, sizeof line, "%lld%09ld %s %s\n", (long long)now.tv_sec, now.tv_nsec, tick, job);
	int file = open(path, O_WRONLY | O_APPEND);
	return n < (int)sizeof line && write(file, line, n) == n ? 0 : 1;
}
