/* The threads of the library in this process, as /proc shows them. */
#ifndef SIGNAL_MASKS_H
#define SIGNAL_MASKS_H
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

/* Returns the number of threads with a name of the library, or -1 if one of them may run a signal handler. */
static int threads_without_signals(void)
{
  static const int signals[] = {SIGINT, SIGTERM, SIGUSR1, SIGALRM, SIGCHLD};
  DIR *threads = opendir("/proc/self/task");
  const struct dirent *thread;
  int count = 0;
  while (threads != NULL && (thread = readdir(threads)) != NULL) {
    char path[300], line[200];
    unsigned long long blocked = 0;
    int ours = 0;
    size_t i;
    FILE *status;
    snprintf(path, sizeof path, "/proc/self/task/%s/status", thread->d_name);
    status = fopen(path, "r");
    while (status != NULL && fgets(line, sizeof line, status) != NULL) {
      ours |= strncmp(line, "Name:\tftsort", 12) == 0;
      sscanf(line, "SigBlk: %llx", &blocked);
    }
    if (status != NULL) fclose(status);
    count += ours;
    for (i = 0; ours && i < sizeof signals / sizeof *signals; i++)
      if ((blocked >> (signals[i] - 1) & 1) == 0) count = -1000;
  }
  if (threads != NULL) closedir(threads);
  return count < 0 ? -1 : count;
}

#endif
