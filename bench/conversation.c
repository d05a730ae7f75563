/* A client in one network namespace talks TCP or UDP over IPv6 to a server in another.
 *
 *   conversation CLIENT-NETNS SERVER-NETNS ADDRESS stream MILLISECONDS   prints bytes per second
 *   conversation CLIENT-NETNS SERVER-NETNS ADDRESS connect COUNT         prints connections per second
 *   conversation CLIENT-NETNS SERVER-NETNS ADDRESS packets MILLISECONDS  prints small UDP packets per second, one flow
 *
 * One process for each side.  A connection is made, reset and made again: no port has to wait for its end.  Packets
 * count where they arrive; the server has answered the first, as those of most protocols do.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PORT = 7000, BACKLOG = 1024, CHUNK = 256 * 1024, LIMIT_SECONDS = 30, BATCH = 64, SMALL = 64 };

static char chunk[CHUNK];
static struct mmsghdr batch[BATCH];
static struct iovec small[BATCH];

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static void enter(const char *netns)
{
	int fd = open(netns, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || setns(fd, CLONE_NEWNET) != 0)
		fail(netns);
	close(fd);
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int new_socket(int kind)
{
	int fd = socket(AF_INET6, kind | SOCK_CLOEXEC, 0);
	if (fd < 0)
		fail("socket");
	return fd;
}

static void serve(int listener)
{
	for (;;) {
		int fd = accept(listener, NULL, NULL);
		if (fd < 0)
			fail("accept");
		while (read(fd, chunk, sizeof chunk) > 0)
			;
		close(fd);
	}
}

static int opened(const struct sockaddr_in6 *server)
{
	struct linger reset = {1, 0};
	int fd = new_socket(SOCK_STREAM);
	if (connect(fd, (const struct sockaddr *)server, sizeof *server) != 0)
		fail("connect");
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
	return fd;
}

static double stream(const struct sockaddr_in6 *server, double seconds)
{
	int fd = opened(server);
	double start = now(), end = start, bytes = 0;
	while ((end = now()) < start + seconds) {
		ssize_t sent = write(fd, chunk, sizeof chunk);
		if (sent < 0)
			fail("write");
		bytes += (double)sent;
	}
	close(fd);
	return bytes / (end - start);
}

static double connections(const struct sockaddr_in6 *server, long count)
{
	double start = now();
	for (long i = 0; i < count; i++)
		close(opened(server));
	return (double)count / (now() - start);
}

static void count(int fd, volatile long *arrived)
{
	struct sockaddr_in6 client;
	socklen_t size = sizeof client;
	if (recvfrom(fd, chunk, SMALL, 0, (struct sockaddr *)&client, &size) < 0 ||
	    sendto(fd, chunk, SMALL, 0, (struct sockaddr *)&client, size) < 0)
		fail("first packet");
	for (;;) {
		int got = recvmmsg(fd, batch, BATCH, MSG_WAITFORONE, NULL);
		if (got < 0)
			fail("recvmmsg");
		*arrived += got;
	}
}

static double packets(const struct sockaddr_in6 *server, double seconds, volatile long *arrived)
{
	int fd = new_socket(SOCK_DGRAM);
	if (connect(fd, (const struct sockaddr *)server, sizeof *server) != 0 || write(fd, chunk, SMALL) < 0 ||
	    read(fd, chunk, SMALL) < 0)
		fail("first packet");
	double start = now(), end;
	long before = *arrived;
	while ((end = now()) < start + seconds)
		if (sendmmsg(fd, batch, BATCH, 0) < 0)
			fail("sendmmsg");
	return (double)(*arrived - before) / (end - start);
}

int main(int argc, char **argv)
{
	struct sockaddr_in6 server = {.sin6_family = AF_INET6, .sin6_port = htons(PORT)};
	if (argc != 6 || inet_pton(AF_INET6, argv[3], &server.sin6_addr) != 1) {
		fprintf(stderr, "usage: conversation CLIENT-NETNS SERVER-NETNS ADDRESS stream|connect|packets AMOUNT\n");
		return 2;
	}
	long amount = atol(argv[5]);
	int datagrams = strcmp(argv[4], "packets") == 0, streams = strcmp(argv[4], "stream") == 0;
	volatile long *arrived = mmap(NULL, sizeof *arrived, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (arrived == MAP_FAILED)
		fail("mmap");
	for (int i = 0; i < BATCH; i++) {
		small[i] = (struct iovec){chunk, SMALL};
		batch[i].msg_hdr = (struct msghdr){.msg_iov = &small[i], .msg_iovlen = 1};
	}
	alarm(LIMIT_SECONDS);
	enter(argv[2]);
	int listener = new_socket(datagrams ? SOCK_DGRAM : SOCK_STREAM), yes = 1;
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
	if (bind(listener, (struct sockaddr *)&server, sizeof server) != 0)
		fail("bind");
	if (!datagrams && listen(listener, BACKLOG) != 0)
		fail("listen");
	pid_t child = fork();
	if (child < 0)
		fail("fork");
	if (child == 0 && datagrams)
		count(listener, arrived);
	if (child == 0)
		serve(listener);
	close(listener);
	enter(argv[1]);
	double seconds = (double)amount / 1000;
	double found = datagrams ? packets(&server, seconds, arrived)
		       : streams ? stream(&server, seconds)
				 : connections(&server, amount);
	printf("%.0f\n", found);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	return 0;
}
