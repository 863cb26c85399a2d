/* A server that does what makes trouble to a library that only looks on. It is its own client, counts what it does, and
 * prints the counts that a watcher must have: connections, turns, bytes that the server's ends received and sent. Then
 * it waits for the end of its input. */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define MUST(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "line %d: %s (errno %d)\n", __LINE__, #condition, errno); \
            exit(1); \
        } \
    } while (0)

enum { THREADS = 8, TURNS = 2000, EARLY = 16 };

static int listener;
static struct sockaddr_in address;
static atomic_long connections, turns, received, sent;
static atomic_int signals;

/* A connection: the server's end; the client's is stored in `client`. */
static int connection(int *client) {
    static pthread_mutex_t pairs = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&pairs);
    *client = socket(AF_INET, SOCK_STREAM, 0);
    MUST(*client >= 0 && connect(*client, (struct sockaddr *)&address, sizeof address) == 0);
    int server = accept(listener, NULL, NULL);
    MUST(server >= 0);
    pthread_mutex_unlock(&pairs);
    connections++;
    return server;
}

/* The client asks. */
static void ask(int client) { MUST(send(client, "question", 8, MSG_NOSIGNAL) == 8); }

/* The server answers; the ends may be those of another process. */
static void answer(int server) {
    char text[64];
    ssize_t got;
    do {
        got = read(server, text, sizeof text);
    } while (got < 0 && errno == EINTR);
    MUST(got == 8);
    struct iovec parts[2] = {{"", 0}, {"answer", 6}};
    MUST(writev(server, parts, 2) == 6);
}

static void hear(int client) {
    char text[64];
    ssize_t got;
    do {
        got = recv(client, text, sizeof text, 0);
    } while (got < 0 && errno == EINTR);
    MUST(got == 6);
}

static void count_turn(void) { turns++, received += 8, sent += 6; }

static void turn(int server, int client) {
    ask(client), answer(server), hear(client), count_turn();
}

/* A connection that the signal handler serves. */
static int handled[2];

static void on_signal(int number) {
    (void)number;
    int before = errno;
    char text[64];
    if (recv(handled[0], text, sizeof text, MSG_DONTWAIT) == 8 && write(handled[0], "answer", 6) == 6)
        signals++, count_turn();
    errno = before;
}

static void *serve(void *unused) {
    (void)unused;
    int client, server = connection(&client);
    for (int i = 0; i < TURNS; i++) turn(server, client);
    MUST(close(server) == 0 && close(client) == 0);
    return NULL;
}

/* The child answers the first turn of its parent's connection and another one, then ends as `how` says. */
static void child(int server, int client, void (*how)(void)) {
    ask(client);
    pid_t pid = fork();
    MUST(pid >= 0);
    if (pid == 0) {
        answer(server), answer(server), how();
    }
    hear(client), count_turn();
    ask(client), hear(client), count_turn();
    MUST(waitpid(pid, NULL, 0) == pid);
}

static void kill_itself(void) { raise(SIGKILL); }
static void leave(void) { _exit(0); }

static void *fork_in_a_thread(void *unused) {
    (void)unused;
    int client, server = connection(&client);
    child(server, client, leave);
    close(server), close(client);
    return NULL;
}

/* A file with the number of a connection: what is read from it is no connection's. */
static void read_file(int number) {
    char text[100];
    int file = open("/proc/self/exe", O_RDONLY);
    MUST(file >= 0);
    if (file != number) {
        MUST(dup2(file, number) == number);
        close(file);
    }
    MUST(read(number, text, sizeof text) == 100);
    close(number);
}

static void descriptors(void) {
    int client, server = connection(&client);
    turn(server, client);
    close(server);
    read_file(server);
    close(client);

    server = connection(&client);
    read_file(server); /* dup2 closes it */
    close(client);

    server = connection(&client);
    FILE *stream = fdopen(server, "r+");
    fclose(stream);
    read_file(server);
    close(client);

    server = connection(&client);
    MUST(close_range(server, server, 0) == 0);
    read_file(server);
    close(client);

    server = connection(&client);
    pid_t pid = vfork();
    if (pid == 0) {
        close(server);
        _exit(0);
    }
    MUST(pid > 0 && waitpid(pid, NULL, 0) == pid);
    turn(server, client); /* the child closed its own */
    close(server), close(client);

    errno = 0;
    MUST(close(-1) == -1 && errno == EBADF && close(1 << 20) == -1 && errno == EBADF);
    char text[1] = "";
    MUST(read(-1, text, 1) == -1 && errno == EBADF);
    MUST(write(-1, text, 1) == -1 && errno == EBADF);
}

static int threads(void) {
    int found = 0;
    DIR *folder = opendir("/proc/self/task");
    MUST(folder != NULL);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) found += entry->d_name[0] != '.';
    closedir(folder);
    return found;
}

/* What daemons do: close whatever somebody else may have left open. Everything from `first` on, in three ways. */
static void close_what_is_foreign(void) {
    int client, server = connection(&client);
    turn(server, client);
    const char *loaded = getenv("LD_PRELOAD"), *how = getenv("UVIEW_PRELOAD");
    if (loaded != NULL && (how == NULL || strcmp(how, "off") != 0))
        while (threads() < 3) usleep(1000); /* then the library has opened what it needs */
    int most = server > client ? server : client;
    for (int number = 3; number < 1024; number++)
        if (number != listener && number != server && number != client) close(number);
    turn(server, client);
    MUST(close_range(most + 1, ~0U, 0) == 0);
    turn(server, client);
    closefrom(most + 1);
    turn(server, client);
    close(server), close(client);
}

static void flags_of_recv(void) {
    char text[64];
    int client, server = connection(&client);
    ask(client);
    MUST(recv(server, text, sizeof text, MSG_PEEK) == 8);
    errno = 7;
    MUST(recv(server, NULL, 8, MSG_TRUNC) == 8 && errno == 7);
    received += 8;
    MUST(recv(server, text, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
    MUST(send(server, "answer", 6, 0) == 6);
    hear(client), turns++, sent += 6;
    close(server), close(client);
}

/* What a program opens without waiting for it, and again after it was undone; datagrams are no connection's. */
static void opened_otherwise(void) {
    const struct sockaddr *to = (struct sockaddr *)&address;
    int client = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    MUST(client >= 0 && (connect(client, to, sizeof address) == 0 || errno == EINPROGRESS));
    int server = accept(listener, NULL, NULL);
    MUST(server >= 0 && fcntl(client, F_SETFL, 0) == 0);
    connections++, turn(server, client);

    struct sockaddr nobody = {.sa_family = AF_UNSPEC};
    MUST(connect(client, &nobody, sizeof nobody) == 0);
    close(server);
    MUST(connect(client, to, sizeof address) == 0);
    server = accept(listener, NULL, NULL);
    MUST(server >= 0);
    connections++, turn(server, client);
    errno = 0;
    MUST(connect(client, to, sizeof address) == -1 && errno == EISCONN);
    turn(server, client);
    close(server), close(client);

    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof own;
    char text[64];
    int datagrams = socket(AF_INET, SOCK_DGRAM, 0);
    MUST(bind(datagrams, (struct sockaddr *)&own, length) == 0);
    MUST(getsockname(datagrams, (struct sockaddr *)&own, &length) == 0);
    MUST(connect(datagrams, (struct sockaddr *)&own, length) == 0);
    MUST(send(datagrams, "question", 8, 0) == 8 && recv(datagrams, text, sizeof text, 0) == 8);
    close(datagrams);
}

/* Connections that are there while the library still looks for its agent. Their turns follow a line of input. */
static void early(void) {
    int servers[EARLY], clients[EARLY];
    for (int i = 0; i < EARLY; i++) servers[i] = connection(&clients[i]);
    puts("connected"), fflush(stdout);
    MUST(getchar() == '\n');
    for (int i = 0; i < EARLY; i++) turn(servers[i], clients[i]);
    for (int i = 0; i < EARLY; i++) close(servers[i]), close(clients[i]);
}

/* Prints the counts, and waits for the end of input. */
static int finish(void) {
    printf("%ld %ld %ld %ld\n", connections, turns, received, sent);
    fflush(stdout);
    while (getchar() != EOF) {
    }
    return 0;
}

int main(int count, char **arguments) {
    listener = socket(AF_INET, SOCK_STREAM, 0);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    MUST(bind(listener, (struct sockaddr *)&address, length) == 0 && listen(listener, 64) == 0);
    MUST(getsockname(listener, (struct sockaddr *)&address, &length) == 0);
    fcntl(listener, F_SETFL, O_NONBLOCK);
    MUST(accept(listener, NULL, NULL) == -1 && errno == EAGAIN);
    fcntl(listener, F_SETFL, 0);
    if (count > 1 && strcmp(arguments[1], "early") == 0) {
        early();
        return finish();
    }

    close_what_is_foreign();
    descriptors();
    flags_of_recv();
    opened_otherwise();

    handled[0] = connection(&handled[1]);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval often = {{0, 500}, {0, 500}};
    setitimer(ITIMER_REAL, &often, NULL);
    pthread_t threads[THREADS + 1];
    for (int i = 0; i < THREADS; i++) MUST(pthread_create(&threads[i], NULL, serve, NULL) == 0);
    MUST(pthread_create(&threads[THREADS], NULL, fork_in_a_thread, NULL) == 0);
    for (int i = 0; i < 100; i++) {
        int before = signals;
        ask(handled[1]);
        while (signals == before) usleep(100);
        hear(handled[1]);
    }
    for (int i = 0; i <= THREADS; i++) pthread_join(threads[i], NULL);
    memset(&often, 0, sizeof often);
    setitimer(ITIMER_REAL, &often, NULL);
    close(handled[0]), close(handled[1]);

    int client, server = connection(&client);
    child(server, client, kill_itself);
    child(server, client, leave);
    turn(server, client);
    close(server), close(client);
    return finish();
}
