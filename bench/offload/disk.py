"""What a disk can do by itself: bytes read and written past the page cache, in blocks as the flash tier has them."""
import mmap
import os
import threading
import time

BLOCK = 1 << 20  # FLASH_STRIPE
AT_ONCE = [1, 2, 4]  # blocks in flight in each direction: a disk may be slower with more


class Disk:
    """A file without a name in a folder, all of which was written once."""

    def __init__(self, folder, size):
        self.size = size // BLOCK * BLOCK
        self.fd = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_DIRECT, 0o600)
        os.posix_fallocate(self.fd, 0, self.size)
        block = mmap.mmap(-1, BLOCK)
        for at in range(0, self.size, BLOCK):
            os.pwritev(self.fd, [block], at)
        os.fsync(self.fd)

    def close(self):
        os.close(self.fd)

    def _move(self, call, at, blocks, at_once):
        left, lock = iter(range(blocks)), threading.Lock()

        def work():
            block = mmap.mmap(-1, BLOCK)
            while True:
                with lock:
                    i = next(left, None)
                if i is None:
                    return
                if call(self.fd, [block], (at + i * BLOCK) % self.size) != BLOCK:
                    raise OSError("a block was not moved whole")

        return [threading.Thread(target=work) for _ in range(at_once)]

    def _time(self, read, written, at_once):
        work = self._move(os.preadv, 0, read // BLOCK, at_once)
        work += self._move(os.pwritev, self.size // 2 // BLOCK * BLOCK, written // BLOCK, at_once)
        start = time.perf_counter()
        for t in work:
            t.start()
        for t in work:
            t.join()
        return time.perf_counter() - start

    def seconds(self, read, written):
        """Least time in which these bytes are read and, at the same time, written."""
        return min(self._time(read, written, n) for n in AT_ONCE)
