/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* The unwinder: walks a user stack through native frames (native.h) and those of
 * languages (interpreted.h). It does not care which program type calls it, and
 * compiles for the host too (unwind/replay), where the maps are plain arrays. */
#ifndef ATYS_UNWIND_H
#define ATYS_UNWIND_H

#include "native.h"
#ifdef WALKS_LANGUAGES
#include "interpreted.h"
#else
#define advance step
#endif

/* Walks until the stack ends. w->process must be set. */
static __always_inline void walk_stack(struct walk *w)
{
	u32 end = 0;
	for (int i = 0; i < MAX_FRAMES + 1; i++) {
		end = advance(w);
		if (end)
			break;
	}
	w->end = end ? end : END_TOO_DEEP;
}

#endif
