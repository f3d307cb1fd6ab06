/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* The few kernel types our programs look at. Fields are found by BTF when a
 * program is loaded (preserve_access_index), so only names must be right here;
 * pt_regs is the x86-64 ABI and is fixed. */
#ifndef ATYS_KERNEL_H
#define ATYS_KERNEL_H

#include <stdbool.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;
typedef __s64 s64;

struct pt_regs {
	u64 r15, r14, r13, r12, bp, bx;
	u64 r11, r10, r9, r8, ax, cx, dx, si, di;
	u64 orig_ax, ip, cs, flags, sp, ss;
};

/* What a perf_event program is given. */
struct bpf_perf_event_data {
	struct pt_regs regs;
	u64 sample_period;
	u64 addr;
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct sched_entity {
	u64 sum_exec_runtime;
};

struct sched_info {
	unsigned long long run_delay; /* time spent in run queues, ns */
};

struct super_block {
	u32 s_dev;
};

struct inode {
	unsigned long i_ino;
	struct super_block *i_sb;
};

struct file {
	struct inode *f_inode;
};

struct vm_area_struct {
	unsigned long vm_start, vm_end;
	unsigned long vm_pgoff;
	unsigned long vm_flags;
	struct file *vm_file;
};

struct maple_tree {
	void *ma_root;
};

typedef struct {
	void *vdso;
} mm_context_t;

struct mm_struct {
	struct maple_tree mm_mt;
	mm_context_t context;
};

struct thread_struct {
	unsigned long fsbase; /* what user code has in fs: its thread pointer */
};

struct task_struct {
	unsigned int flags;
	struct mm_struct *mm;
	int pid;
	int tgid;
	u64 utime;
	u64 stime;
	u64 start_time; /* monotonic */
	u64 start_boottime;
	unsigned long nvcsw, nivcsw;
	struct sched_entity se;
	struct sched_info sched_info;
	int exit_state;
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	char comm[16];
	struct thread_struct thread;
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

#pragma clang attribute pop

#define PF_EXITING 0x00000004	 /* in exit: its memory may be gone */
#define PF_FORKNOEXEC 0x00000040 /* forked, has not called exec: shares its parent's image */
#define PF_KTHREAD 0x00200000	 /* kernel thread: no user stack */

#define NR_EXECVE 59
#define NR_EXECVEAT 322

#define USER_CS 0x33 /* code segment of 64-bit user mode */

/* Keeps the compiler from reasoning a bound away that the verifier needs. */
#define OPAQUE(x) asm volatile("" : "+r"(x))

#define READ_ONCE(x) (*(volatile typeof(x) *)&(x))
#define WRITE_ONCE(x, value) (*(volatile typeof(x) *)&(x) = (value))

/* The value of a map that has one. */
static __always_inline void *only(void *map)
{
	u32 zero = 0;
	return bpf_map_lookup_elem(map, &zero);
}

#endif
