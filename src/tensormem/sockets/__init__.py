"""Owns: sockets between processes of one machine: who is at the other end, how messages are kept apart, how long
anybody waits, and where the addresses are.

Every connection is checked by the kernel's word on both sides (`peer`). What other users must not reach has its address
in a directory of this user alone (`directory`). Messages are packets, with descriptors beside them (`packets`), or
lines of text (`lines`). All waiting is done in one place (`shared_socket`). Must not know: what messages say.
"""
