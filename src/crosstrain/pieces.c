/* Writing to a file in pieces (pieces.py), without the interpreter between them. Compiled by hatch_build.py. */

#define _GNU_SOURCE

#include <errno.h>
#include <stdint.h>
#include <sys/types.h>
#include <unistd.h>

/* Writes `count` bytes from `offset` on, at most `piece` at a time. Returns how many were written, fewer if the system refuses more;
 * if it refuses the first ones, minus the error's number. */
int64_t crosstrain_write(int handle, const char *data, int64_t count, int64_t offset, int64_t piece)
{
    int64_t done = 0;
    while (done < count) {
        const int64_t left = count - done;
        const ssize_t wrote = pwrite(handle, data + done, (size_t)(left < piece ? left : piece), (off_t)(offset + done));
        if (wrote < 0 && errno == EINTR && !done)
            continue;
        if (wrote <= 0)
            return done || !wrote ? done : -(int64_t)errno;
        done += wrote;
    }
    return done;
}
