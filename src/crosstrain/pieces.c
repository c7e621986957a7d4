/* Moving bytes into a file in pieces (pieces.py), without the interpreter between them. Compiled by hatch_build.py. */

#define _GNU_SOURCE

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static int64_t least_of(int64_t one, int64_t other)
{
    return one < other ? one : other;
}

/* From `offset` to the next multiple of `piece`: a page that is written in two parts is filled with zeros first. */
static int64_t to_boundary(int64_t offset, int64_t piece)
{
    return piece - offset % piece;
}

/* Writes `count` bytes from `offset` on, at most `piece` at a time. Returns how many were written, fewer if the system refuses more;
 * if it refuses the first ones, minus the error's number. */
int64_t crosstrain_write(int handle, const char *data, int64_t count, int64_t offset, int64_t piece)
{
    int64_t done = 0;
    while (done < count) {
        const int64_t length = least_of(count - done, to_boundary(offset + done, piece));
        const ssize_t wrote = pwrite(handle, data + done, (size_t)length, (off_t)(offset + done));
        if (wrote < 0 && errno == EINTR && !done)
            continue;
        if (wrote <= 0)
            return done || !wrote ? done : -(int64_t)errno;
        done += wrote;
    }
    return done;
}

/* As pieces.py's Moved; errors are numbers, 0 for none. */
struct moved {
    int64_t received;
    int64_t written;
    int64_t dry;
    int64_t ended;
    int64_t connection_error;
    int64_t file_error;
};

static int64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* Whether there is something, which is waited for; what that takes goes off the patience. */
static int comes(int connection, int64_t *patience_ns)
{
    const int64_t begun = now_ns();
    const struct timespec most = {*patience_ns / 1000000000, *patience_ns % 1000000000};
    struct pollfd readable = {connection, POLLIN, 0};
    const int found = *patience_ns > 0 && ppoll(&readable, 1, &most, NULL) > 0;
    *patience_ns -= now_ns() - begun;
    return found;
}

/* Receives until the buffer is full, or there is no more and no patience, or the other end is gone; how many bytes. */
static int64_t fill(int connection, char *buffer, int64_t count, int64_t *patience_ns, struct moved *moved)
{
    int64_t filled = 0;
    while (filled < count) {
        const ssize_t came = recv(connection, buffer + filled, (size_t)(count - filled), MSG_DONTWAIT);
        if (came > 0) {
            filled += came;
            continue;
        }
        if (came < 0 && errno == EINTR)
            continue;
        if (came == 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) {
            moved->ended = 1;
            moved->connection_error = came ? errno : 0;
            break;
        }
        if (!comes(connection, patience_ns))
            break;
    }
    return filled;
}

/* Moves at most `count` bytes from a connection into a file from `offset` on, through a buffer of `piece` bytes; without a file
 * (handle -1) they are dropped. Ends when there is nothing more and all patience is spent, at the end of the connection, and when the
 * file takes no more. */
void crosstrain_receive(int connection, int handle, int64_t offset, int64_t count, char *buffer, int64_t piece, int64_t patience_ns,
                        struct moved *moved)
{
    while (moved->received < count && !moved->ended) {
        const int64_t left = count - moved->received;
        const int64_t wanted = least_of(left, to_boundary(offset + moved->received, piece));
        const int64_t filled = fill(connection, buffer, wanted, &patience_ns, moved);
        moved->received += filled;
        for (int64_t done = 0; handle >= 0 && done < filled;) {
            const int64_t wrote = crosstrain_write(handle, buffer + done, filled - done, offset + moved->written, piece);
            if (wrote <= 0) {
                moved->file_error = wrote ? -wrote : EIO;
                return;
            }
            done += wrote;
            moved->written += wrote;
        }
        if (filled < wanted) {
            moved->dry = 1;
            return;
        }
    }
}
