/* The one program of the test image.  It holds the sandbox's namespaces open, and tells whoever connects to TCP
 * port 8080, by either family, the sandbox's host name, so that a test sees which pod answered. */
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PORT 8080

static int listener(void)
{
	struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_port = htons(PORT)};
	int off = 0, on = 1;
	int fd = socket(AF_INET6, SOCK_STREAM, 0);

	if (fd < 0 || setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) ||
	    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) ||
	    bind(fd, (struct sockaddr *)&any, sizeof any) || listen(fd, 16))
		return -1;
	return fd;
}

int main(void)
{
	char name[256] = "";
	int server = listener();

	if (server < 0 || gethostname(name, sizeof name - 1)) {
		perror("pause");
		return 1;
	}
	for (;;) {
		int client = accept(server, NULL, NULL);

		if (client < 0)
			continue;
		(void)!write(client, name, strlen(name));
		close(client);
	}
}
