/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Processes of runtimes: what the packages below internal/lang found of each. */
#ifndef ATYS_PROCESSES_H
#define ATYS_PROCESSES_H

#include "frames.h"

#ifndef THREAD_POINTER /* sampler/dump reads other threads */
#define THREAD_POINTER() (bpf_get_current_task_btf()->thread.fsbase)
#endif

/* Declares the map of a runtime's processes by thread group id, and name_process_of,
 * which looks one up. By value, as 6.1 takes no keys from a map's value. unwind/replay
 * has one process of each language. */
#ifndef PROCESSES_OF
#define PROCESSES_OF(name, language) \
	struct { \
		__uint(type, BPF_MAP_TYPE_HASH); \
		__uint(map_flags, BPF_F_NO_PREALLOC); \
		__uint(max_entries, 4096); \
		__type(key, u32); \
		__type(value, struct name##_process); \
	} name##_processes SEC(".maps"); \
	static __always_inline struct name##_process *name##_process_of(u32 tgid) \
	{ \
		return bpf_map_lookup_elem(&name##_processes, &tgid); \
	}
#endif

/* Whether a word can be the address of an object of .NET, PHP, Ruby or Perl. */
static __always_inline bool is_object(u64 address)
{
	return address >= 4096 && !(address & 7) && !(address >> 47);
}

/* Whether code at a file offset is in one of the two parts that compilers make of
 * an interpreter's loop. */
#define IN_CODE(at, parts) \
	(((at) >= (parts)[0].start && (at) < (parts)[0].end) || ((at) >= (parts)[1].start && (at) < (parts)[1].end))

#endif
