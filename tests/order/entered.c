/* Which functions does a process enter?
 *
 *   entered SIZE MAIN ADDRESSES OUT
 *
 * Waits for the first new process `/linesman agent` whose program has SIZE bytes, and puts a breakpoint on each of ADDRESSES (a file
 * of hexadecimal numbers as the program was linked, one a line) when it comes to MAIN: what relocates the program before that bears
 * no breakpoint. A breakpoint that is met is taken away again, so a function
 * costs once. When the process ends, the addresses of all that were met are written to OUT.
 *
 * It has to see the process before its first instruction of its own: it looks without pause, and stops what it finds.
 * Linux on x86-64, as root. Ends after 10 minutes without such a process, and after 20 with one.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 200000, LOOK = 600, TRACE = 1200 };

static unsigned long address[MOST], base;
static unsigned char first[MOST], met[MOST];
static size_t count;
static int memory;

static void fail(const char *what) {
  perror(what);
  exit(1);
}

static int by_value(const void *a, const void *b) {
  unsigned long x = *(const unsigned long *)a, y = *(const unsigned long *)b;
  return (x > y) - (x < y);
}

/* Of the processes, the newest has this id. */
static int newest(void) {
  int id = 0;
  FILE *file = fopen("/proc/loadavg", "r");
  if (!file || fscanf(file, "%*f %*f %*f %*d/%*d %d", &id) != 1) fail("/proc/loadavg");
  fclose(file);
  return id;
}

static int is_agent(int id, long size) {
  static const char NAME[] = "/linesman\0agent";
  char path[64], words[sizeof NAME] = {0};
  struct stat program;
  snprintf(path, sizeof path, "/proc/%d/exe", id);
  if (stat(path, &program) || program.st_size != size) return 0;
  snprintf(path, sizeof path, "/proc/%d/cmdline", id);
  int file = open(path, O_RDONLY);
  if (file < 0) return 0;
  ssize_t got = read(file, words, sizeof words);
  close(file);
  return got == sizeof words && !memcmp(words, NAME, sizeof NAME);
}

static int agent(long size) {
  int from = newest();
  for (time_t end = time(0) + LOOK; time(0) < end;) {
    int to = newest();
    if (to < from) from = to; /* ids began anew */
    /* A process gets its name some time after its id. */
    for (int id = from > 400 ? from - 400 : 1; id <= to; ++id)
      if (is_agent(id, size) && !kill(id, SIGSTOP)) return id;
    from = to;
  }
  fprintf(stderr, "no such agent within %d s\n", LOOK);
  exit(1);
}

static void load(const char *file, int id) {
  char path[64], line[512];
  snprintf(path, sizeof path, "/proc/%d/maps", id);
  FILE *maps = fopen(path, "r");
  while (maps && !base && fgets(line, sizeof line, maps))
    if (strstr(line, "/linesman")) base = strtoul(line, 0, 16);
  FILE *list = fopen(file, "r");
  if (!base || !list) fail(file);
  while (count < MOST && fgets(line, sizeof line, list)) address[count++] = strtoul(line, 0, 16) + base;
  qsort(address, count, sizeof *address, by_value);
  /* Equal functions share an address, which has one breakpoint. */
  size_t kept = 0;
  for (size_t i = 0; i < count; ++i)
    if (!kept || address[i] != address[kept - 1]) address[kept++] = address[i];
  count = kept;
  fclose(maps);
  fclose(list);
}

static void arm(size_t i) {
  /* Some symbols are no addresses of the program's: those cannot be read. */
  if (!met[i] && pread(memory, &first[i], 1, (off_t)address[i]) == 1 && pwrite(memory, "\xcc", 1, (off_t)address[i]) != 1)
    fail("breakpoint");
}

static unsigned long *of(unsigned long where) { return bsearch(&where, address, count, sizeof *address, by_value); }

/* A breakpoint was met by `thread`: whether it is one of ours, which then is no more. */
static int meet(int thread) {
  struct user_regs_struct at;
  if (ptrace(PTRACE_GETREGS, thread, 0, &at)) return 0;
  unsigned long where = at.rip - 1;
  unsigned long *found = of(where);
  if (!found) return 0;
  size_t i = (size_t)(found - address);
  met[i] = 1;
  at.rip = where;
  /* Another thread may have met it at the same time: both go back and run it. */
  return pwrite(memory, &first[i], 1, (off_t)where) == 1 && !ptrace(PTRACE_SETREGS, thread, 0, &at);
}

/* Lets the process run until it ends, or the function at `until` was met, or `seconds` are over. */
static void follow(int id, const unsigned char *until, int seconds) {
  for (time_t end = time(0) + seconds; time(0) < end && !*until;) {
    int status, thread = waitpid(-1, &status, __WALL | WNOHANG);
    if (!thread) usleep(1000);
    if (thread < 0) return;
    if (thread <= 0) continue;
    if (WIFEXITED(status) || WIFSIGNALED(status)) {
      if (thread == id) return;
      continue;
    }
    int sign = WSTOPSIG(status), event = status >> 16;
    ptrace(PTRACE_CONT, thread, 0, event || (sign == SIGTRAP && meet(thread)) ? 0 : sign);
  }
}

/* Its threads, which stand still. */
static void seize(int id) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/task", id);
  DIR *tasks = opendir(path);
  if (!tasks) fail(path);
  for (struct dirent *task; (task = readdir(tasks));) {
    int thread = atoi(task->d_name);
    if (thread > 0 && ptrace(PTRACE_SEIZE, thread, 0, PTRACE_O_TRACECLONE)) fail("trace");
    if (thread > 0 && ptrace(PTRACE_INTERRUPT, thread, 0, 0)) fail("stop");
  }
  closedir(tasks);
  snprintf(path, sizeof path, "/proc/%d/mem", id);
  if ((memory = open(path, O_RDWR)) < 0) fail(path);
}

int main(int number, char **words) {
  if (number != 5) return fprintf(stderr, "entered SIZE MAIN ADDRESSES OUT\n"), 2;
  int id = agent(atol(words[1]));
  static const unsigned char NEVER = 0;
  seize(id);
  load(words[3], id);
  unsigned long *at = of(strtoul(words[2], 0, 16) + base);
  if (!at) fail(words[2]);
  size_t first_of_all = (size_t)(at - address);
  arm(first_of_all);
  kill(id, SIGCONT);
  /* An agent that was seen after its start does not come there again. */
  follow(id, &met[first_of_all], 1);
  for (size_t i = 0; i < count; ++i) if (i != first_of_all) arm(i);
  follow(id, &NEVER, TRACE);
  FILE *out = fopen(words[4], "w");
  if (!out) fail(words[4]);
  for (size_t i = 0; i < count; ++i)
    if (met[i]) fprintf(out, "%016lx\n", address[i] - base);
  return fclose(out) ? 1 : 0;
}
