"""The small process that confines itself and starts commands; standard library only.

It runs as `python -I -S`, without the rest of Holdfast, and holds no secret. Its main
thread stays free, so that it can end what it started. A second thread gives up every
right that a command must not have, for good, and starts the commands: rights, Landlock
and seccomp belong to threads, and a child has those of the thread that made it. So a
command costs one `posix_spawn`, and nothing is done between fork and exec.
"""
