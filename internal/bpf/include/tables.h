/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* What walks look at and what they leave: the tables of processes, mappings and
 * rows that package unwind fills, and a walk itself. */
#ifndef ATYS_TABLES_H
#define ATYS_TABLES_H

#include "kernel.h"
#ifdef WALKS_LANGUAGES
#include "languages.h"
#endif

#ifdef WALKS_LANGUAGES
#define MAX_FRAMES 2047 /* words: 1,023 frames of languages, which take two, or so many native ones */
#else
#define MAX_FRAMES 127
#endif
#define MAX_MAPPINGS (1u << 17) /* over all processes */
#define AREA_CELLS 512 /* of the mappings, at their end: see find_unknown */
#define MAX_EXECUTABLES (1u << 14)
#define MAX_ROWS (1u << 24) /* that can be asked for; see rows_mask */
#define MAX_CELLS (1u << 18) /* of the directory: see struct cell */

/* One executable mapping of one process. A process's mappings are an extent of
 * the mappings array, sorted by start. */
struct mapping {
	u64 start, end;
	u64 offset;	/* of start, in the file */
	u32 executable; /* index of executables; 0: memory without a file */
	u32 flags;
};

#define MAPPING_FRAME_POINTERS 1 /* code without a file whose maker keeps frame pointers */
#define MAPPING_SHARED 2 /* memory shared with other processes */

/* Where a process's mappings are, and when they last grew (exec, dlopen). */
struct process {
	u32 first, count;
	u64 changed; /* CLOCK_MONOTONIC ns; 0: not since we look */
	u64 known;   /* what happened up to here is in it, likewise */
	u32 languages; /* whose parameters are known, RUNS(language) each */
	u32 used;    /* tick of the last walk, counted here: see TICK */
};

/* Where an executable's rows are: the directory of its table. */
struct executable {
	u32 cell, cells; /* extent of the directory */
	u32 generation;	 /* of cell and cells: another one once they have changed */
	u32 identity;	 /* that the number had other files before: see FRAME_OFFSET_BITS */
	u32 flags;
	u32 wanted; /* counted here: walks that needed a table that was not there */
};

#define EXECUTABLE_LOADED 1
#define EXECUTABLE_FRAME_POINTERS 2 /* its code is known to keep frame pointers */
/* why it is not loaded; neither: it is being loaded */
#define EXECUTABLE_EVICTED 4
#define EXECUTABLE_NO_ROOM 8

/* A table is cut into chunks of 255 rows, those of consecutive code, of which
 * those that walks use are in slots of the rows array. The directory has a cell
 * for each chunk, sorted by start. Row offsets are file offsets. unwind/paging
 * says in which order all this is written, and why it is safe to read. */
struct cell {
	u32 start; /* of the chunk's first row */
	u32 entry; /* generation << 16 | slot; without a slot, the flags below */
};

#define CELL_SLOT 0xffffu
#define CELL_EVICTED (1u << 16) /* had a slot, which was given to another chunk */
#define CELL_ASKED (1u << 31) /* user space was asked for it */

/* A slot: 256 words of the rows array. The first is its header. */
#define SLOT_SHIFT 8
struct slot_header {
	u32 used; /* tick of the last walk that used it, noted here; 0: none since it was loaded */
	u32 generation;
};

#define TICK_SHIFT 27 /* of nanoseconds: 134 ms */

/* What step returns beside an end: the pc lies in code that a language made. */
#define STEP_IN_CODE_MADE 64

/* Languages whose functions are more, or less, than native frames; interpreted.h
 * tells how walks find them. RUNS(language) is a flag of an executable that holds
 * the language's runtime, and of a process whose runtime can be read. */
enum language {
	LANGUAGE_NONE,
	LANGUAGE_PYTHON,
	LANGUAGE_JAVA,
	LANGUAGE_V8,
	LANGUAGE_RUBY,
	LANGUAGE_PHP,
	LANGUAGE_PERL,
	LANGUAGE_BEAM,
	LANGUAGE_DOTNET,
};

#define RUNS(language) (1u << (8 + (language)))
/* those that make code at run time, in memory without a file */
#define MAKES_CODE (RUNS(LANGUAGE_JAVA) | RUNS(LANGUAGE_V8) | RUNS(LANGUAGE_PHP) | RUNS(LANGUAGE_DOTNET) | \
		    RUNS(LANGUAGE_BEAM))

/* How a walk ended; the numbers are profile.End's. */
enum walk_end {
	END_UNKNOWN,
	END_COMPLETE,
	END_NO_USER,
	END_TOO_DEEP,
	END_NO_MAPPING,
	END_NO_UNWIND,
	END_UNREADABLE,
	END_UNSUPPORTED,
	END_NOT_LOADED,
	END_CORRUPT,
	END_LOST,
	END_STARTING, /* no mapping or no rows yet, within 50 ms of exec or dlopen */
	END_PARKED, /* a virtual thread's older frames are not on the stack */
	END_DAMAGED, /* of profile.End only: no walk ends so */
	END_EVICTED, /* the rows made room for others, before the walk or during it */
	END_NO_ROOM, /* the directory has no room for the table */
};

/* A frame is 64 bits:
 *
 *   0 | executable (23 bits) | file offset (40 bits)    code of a file: 9 bits of
 *                                                       identity, 14 of number
 *   100 | address (61 bits)                             user code without a file
 *   101 | address (61 bits)                             where nothing is known to be mapped
 *   111 | address                                       kernel code
 *   1100 | kind (4 bits) | what (56 bits), then a word  a language's: interpreted.h
 */
#define FRAME_OFFSET_BITS 40
#define FRAME_ANONYMOUS (1ull << 63)
#define FRAME_UNMAPPED (1ull << 63 | 1ull << 61)
#define ADDRESS_BITS (~(7ull << 61))

/* A file that user space knows, by device (major << 20 | minor) and inode;
 * zeros: the vdso. */
struct file_key {
	u64 inode;
	u32 device, unused;
};

/* What find_area reads of the kernel: too much for the stack of a program on 6.1. */
struct area {
	u64 node[32];
	u64 start, end, pages, flags;
	u64 file, inode, super, vdso;
};

/* A walk in progress, and its result. Too big for the stack: one per CPU. */
struct walk {
	u64 ip, sp, bp;	 /* of the frame being looked at */
	u64 regs[16];	 /* of the innermost frame, by DWARF number */
	u64 hash;	 /* of the frames so far */
	u32 count;	 /* frames so far */
	u32 is_return;	 /* ip is a return address: the call is before it */
	u32 hint;	 /* the mapping that held the last pc */
	u32 end;	 /* enum walk_end */
	u32 bp_lost;	 /* bp could not be recovered */
	u32 by_area;	 /* some mapping was not known to user space: find_area */
	u32 owner;	 /* thread group id by which the process is known: see find_process */
	u32 tick;	 /* time of the walk, 0 is none */
	u32 missing;	 /* file offset of the code whose rows were missing, */
	u32 cell;	 /* and the cell that says so */
	u64 frames[MAX_FRAMES + 1];
	struct area area;
	struct process process;
#ifdef WALKS_LANGUAGES
	struct languages languages;
	union script_words script;
	struct python_words python; /* not cleared: read anew for each frame */
	struct v8_frame v8;
	struct dotnet_walk dotnet;
	struct hotspot_walk hotspot; /* not cleared: languages.begun tells whether it is read */
#endif
};

struct mappings {
	struct mapping m[MAX_MAPPINGS];
};
struct executables {
	struct executable e[MAX_EXECUTABLES];
};
struct rows {
	u64 r[MAX_ROWS];
};
struct cells {
	struct cell c[MAX_CELLS];
};

#ifndef ATYS_REPLAY

/* How many words the rows array has, less one: a power of two that the loader
 * chooses, and gives the rows map its size by. */
const volatile u32 rows_mask = MAX_ROWS - 1;

/* The unwinder's maps are single values that user space maps and writes, so a
 * lookup is an address and loading a table is a copy. Package unwind owns them. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct mappings);
} mappings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct executables);
} executables SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct rows);
} rows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct cells);
} cells SEC(".maps");

/* Processes by thread group id. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, u32);
	__type(value, struct process);
} processes SEC(".maps");

/* When each process last called exec: what was known of it before is void. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, u32);
	__type(value, u64);
} execs SEC(".maps");

/* Executables by their file. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_EXECUTABLES);
	__type(key, struct file_key);
	__type(value, u32);
} files SEC(".maps");

/* What user space should look at: a process or code not known yet. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 64 * 1024);
} requests SEC(".maps");

/* Since when each process is asked about, and when it last was: one that cannot
 * be helped does not flood the ring. */
struct asked {
	u64 since, last;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, u32);
	__type(value, struct asked);
} asked SEC(".maps");

#ifndef READ_USER /* sampler/dump reads other threads */
#define READ_USER(to, size, from) bpf_probe_read_user(to, size, (void *)(from))
#define READ_USER_TEXT(to, size, from) bpf_probe_read_user_str(to, size, (void *)(from))
#endif

#define MAPPINGS() ((struct mappings *)only(&mappings))
#define EXECUTABLES() ((struct executables *)only(&executables))
#define ROWS() ((struct rows *)only(&rows))
#define CELLS() ((struct cells *)only(&cells))
/* Zero means that a slot was never used; the clock is far from it. */
#define TICK() ((u32)(bpf_ktime_get_ns() >> TICK_SHIFT))
#define STEP __attribute__((noinline))

#else
static const u32 rows_mask = MAX_ROWS - 1;
/* unwind/replay defines READ_USER, READ_USER_TEXT, the four accessors, TICK and STEP before it includes this. */
#endif

struct request {
	u32 tgid;
	u32 executable; /* whose rows are wanted; 0: the process or address is unknown */
	u64 address;	/* a file offset where an executable is given */
	u64 sp;		/* of the frame that the walk had come to */
};

#endif
