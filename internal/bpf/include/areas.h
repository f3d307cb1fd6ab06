/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Where code of the current thread is mapped, in the kernel's own tree of
 * areas: for processes that user space has not heard of yet.
 *
 * User space learns of an exec some milliseconds later than the program runs;
 * of processes that live as long that is most of their life. The interrupt may
 * not take the lock of the tree (bpf_iter_task_vma refuses with interrupts off),
 * so the tree is read as it is: nodes are freed by RCU, who may change it is
 * the very process that is interrupted, each read may fail, depth is bounded,
 * and an area counts only if it holds the pc. */
#ifndef ATYS_AREAS_H
#define ATYS_AREAS_H

#include <bpf/bpf_core_read.h>
#include "tables.h"

/* The maple tree of mm_struct.mm_mt (lib/maple_tree.c, include/linux/maple_tree.h;
 * the same in Linux 6.1 to 6.18, and checked by tree_is_known). A node is 256 bytes at a multiple of 256, and
 * a pointer to one has its type in bits 3 to 6; the root's ends in binary 10,
 * or it is no node but the only area:
 *
 *   parent u64 | pivots u64[15] | slots u64[16]                    leaf and range
 *   parent u64 | pivots u64[9]  | slots u64[10] | gaps u64[10] ... range with gaps
 *
 * Slot i holds what lies above pivot i-1, up to pivot i; the pivot after the
 * last is 0. */
#define NODE_MASK 255ull
#define NODE_TYPE(entry) ((entry) >> 3 & 15)
#define NODE_LEAF 1
#define NODE_GAPS 3
#define PIVOTS 15
#define PIVOTS_WITH_GAPS 9
#define MAX_DEPTH 6 /* 10^5 areas need 5 */

#define VM_EXEC 4

/* As this kernel describes them, by BTF; sizes and places here do not matter. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct maple_node {
	char unused;
};

struct maple_range_64 {
	unsigned long pivot[PIVOTS];
	void *slot[PIVOTS + 1];
};

struct maple_arange_64 {
	unsigned long pivot[PIVOTS_WITH_GAPS];
	void *slot[PIVOTS_WITH_GAPS + 1];
};

#pragma clang attribute pop

enum maple_type {
	maple_leaf_64,
	maple_arange_64,
};

/* Whether this kernel's tree is laid out as above. All of it is decided when
 * the program is loaded; where it is not, the walk is not even there. */
static __always_inline bool tree_is_known(void)
{
	if (!bpf_core_field_exists(struct mm_struct, mm_mt) || !bpf_core_field_exists(struct maple_tree, ma_root) ||
	    !bpf_core_type_exists(struct maple_node) || !bpf_core_field_exists(struct maple_range_64, pivot) ||
	    !bpf_core_field_exists(struct maple_range_64, slot) || !bpf_core_field_exists(struct maple_arange_64, pivot) ||
	    !bpf_core_field_exists(struct maple_arange_64, slot) ||
	    !bpf_core_enum_value_exists(enum maple_type, maple_leaf_64) ||
	    !bpf_core_enum_value_exists(enum maple_type, maple_arange_64))
		return false;
	return bpf_core_type_size(struct maple_node) == NODE_MASK + 1 &&
	       bpf_core_enum_value(enum maple_type, maple_leaf_64) == NODE_LEAF &&
	       bpf_core_enum_value(enum maple_type, maple_arange_64) == NODE_GAPS &&
	       bpf_core_field_offset(struct maple_range_64, pivot) == 8 &&
	       bpf_core_field_offset(struct maple_range_64, slot) == 8 * (1 + PIVOTS) &&
	       bpf_core_field_offset(struct maple_arange_64, pivot) == 8 &&
	       bpf_core_field_offset(struct maple_arange_64, slot) == 8 * (1 + PIVOTS_WITH_GAPS);
}

/* The area that holds an address; 0: none. */
static __always_inline struct vm_area_struct *find_vma(struct area *a, u64 address)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct mm_struct *mm = task->mm;
	if (!tree_is_known() || !mm || bpf_core_read(&a->file, sizeof(a->file), &mm->mm_mt.ma_root))
		return 0;
	u64 entry = a->file;
	if ((entry & 3) != 2)
		return 0;
	for (int level = 0; level < MAX_DEPTH; level++) {
		u32 type = NODE_TYPE(entry);
		if (bpf_probe_read_kernel(a->node, sizeof(a->node), (void *)(entry & ~NODE_MASK)))
			return 0;
		u32 pivots = type == NODE_GAPS ? PIVOTS_WITH_GAPS : PIVOTS, slot = pivots;
		for (u32 i = 0; i < PIVOTS; i++) {
			if (i >= pivots)
				break;
			u64 pivot = a->node[1 + i];
			if (pivot >= address || (i > 0 && pivot == 0)) {
				slot = i;
				break;
			}
		}
		slot += 1 + pivots;
		OPAQUE(slot);
		entry = a->node[slot & 31];
		if (type == NODE_LEAF)
			return entry & 3 ? 0 : (struct vm_area_struct *)entry;
	}
	return 0;
}

#define READ_AREA(to, from) bpf_core_read(&(to), sizeof(to), &(from))

/* The executable behind an area's file: 0 if it has none. False where it has
 * one that user space does not know. */
static __always_inline bool file_of(struct area *a, struct vm_area_struct *vma, u32 *executable)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct mm_struct *mm = task->mm;
	*executable = 0;
	struct file_key key = {};
	READ_AREA(a->file, vma->vm_file);
	if (a->file) {
		struct file *file = (struct file *)a->file;
		READ_AREA(a->inode, file->f_inode);
		struct inode *inode = (struct inode *)a->inode;
		READ_AREA(key.inode, inode->i_ino);
		READ_AREA(a->super, inode->i_sb);
		struct super_block *super = (struct super_block *)a->super;
		READ_AREA(key.device, super->s_dev);
	} else {
		READ_AREA(a->vdso, mm->context.vdso);
		if (a->start != a->vdso)
			return true; /* made at run time */
	}
	u32 *id = bpf_map_lookup_elem(&files, &key);
	if (id)
		*executable = *id;
	return id != 0;
}

/* Fills this CPU's cell with the mapping that holds the pc. */
static __attribute__((noinline, unused)) u32 find_area(struct walk *w, struct mapping *m)
{
	if (!w || !m)
		return 0;
	struct area *a = &w->area;
	u64 pc = w->ip - w->is_return;
	struct vm_area_struct *vma = find_vma(a, pc);
	if (!vma)
		return 0;
	READ_AREA(a->start, vma->vm_start);
	READ_AREA(a->end, vma->vm_end);
	READ_AREA(a->pages, vma->vm_pgoff);
	READ_AREA(a->flags, vma->vm_flags);
	if (pc < a->start || pc >= a->end || !(a->flags & VM_EXEC))
		return 0;
	w->by_area = file_of(a, vma, &m->executable); /* then the cell may be used again */
	m->start = a->start;
	m->end = a->end;
	m->offset = a->pages << 12;
	m->flags = 0;
	return w->by_area;
}

#endif
