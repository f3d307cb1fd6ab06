/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Frames of languages, on one stack with native ones.
 *
 *   code made at run time   the language's walker knows its frames: step_in_code_made
 *   a runtime's native      it ran functions whose frames the runtime keeps in
 *   frame, just walked      lists of its own: add_functions puts them above it
 *
 * A language frame is two words: FRAME_LANGUAGE | kind << 56 | what, and where.
 * What they mean is its language's business (python.h, hotspot.h, ...), and
 * that of the Go package below lang/ which names them. Each language is one
 * global function, proven once, and keeps its state in struct languages. */
#ifndef ATYS_INTERPRETED_H
#define ATYS_INTERPRETED_H

#include "native.h"
#include "photographs.h"
#include "python.h"
#include "php.h"
#include "ruby.h"
#include "perl.h"
#include "v8.h"
#include "hotspot.h"
#include "dotnet.h"
#include "beam.h"

/* Goes on from a pc in code that a language made. */
static __always_inline u32 step_in_code_made(struct walk *w)
{
	if (w->process.languages & RUNS(LANGUAGE_V8)) {
		u32 end = step_v8(w);
		photograph_met_v8(w);
		return end;
	}
	if (w->process.languages & RUNS(LANGUAGE_JAVA)) {
		u32 end = hotspot_step(w);
		if (end != STEP_IN_CODE_MADE)
			return end;
	}
	if (w->process.languages & RUNS(LANGUAGE_PHP))
		return w->languages.code_flags & MAPPING_SHARED ? step_php_code(w) : step_pcre(w);
	if (w->process.languages & RUNS(LANGUAGE_BEAM))
		return step_beam(w);
	if (w->process.languages & RUNS(LANGUAGE_DOTNET)) {
		u32 end = step_dotnet(w);
		return end == END_COMPLETE ? END_CORRUPT : end; /* native code calls it */
	}
	push_frame(w, FRAME_ANONYMOUS | ((w->ip - w->is_return) & ADDRESS_BITS));
	return END_NO_UNWIND;
}

/* Adds the functions that the runtime's frame just walked had been running. */
static __always_inline u32 add_functions(struct walk *w)
{
	if (w->languages.runs & RUNS(LANGUAGE_V8)) {
		add_v8(w);
		photograph_met_v8(w);
	}
	if (w->languages.runs & RUNS(LANGUAGE_PYTHON))
		add_python(w);
	if (w->languages.runs & RUNS(LANGUAGE_PHP))
		return add_php(w);
	if (w->languages.runs & RUNS(LANGUAGE_RUBY))
		return add_ruby(w);
	if (w->languages.runs & RUNS(LANGUAGE_PERL))
		return add_perl(w);
	return 0;
}

/* Whether functions of a language were left behind by a walk that came to its end. */
static __always_inline u32 end_of_languages(struct walk *w, u32 end)
{
	if (end == END_COMPLETE && (w->languages.python.broken || w->languages.python.frame))
		return END_UNSUPPORTED;
	if (end == END_COMPLETE && w->languages.runs & RUNS(LANGUAGE_V8))
		return end_v8(w);
	if (end == END_NO_UNWIND && w->languages.runs & RUNS(LANGUAGE_PHP))
		return end_php_fiber(w);
	if (end == END_CORRUPT ? w->languages.runs & RUNS(LANGUAGE_RUBY) : end == END_COMPLETE && w->languages.begun & RUNS(LANGUAGE_RUBY))
		return end_ruby(w, end);
	if (end == END_COMPLETE && w->languages.begun & RUNS(LANGUAGE_PHP))
		return end_php(w);
	if (end == END_COMPLETE && w->languages.begun & RUNS(LANGUAGE_PERL))
		return end_perl(w);
	return end;
}

/* The end of a walk: one that lacks frames on the way is not whole. */
static __always_inline u32 end_walk(struct walk *w, u32 end)
{
	end = end_of_languages(w, end);
	return end == END_COMPLETE && w->languages.cut ? w->languages.cut : end;
}

/* One step of a walk through native frames and those of languages. */
STEP u32 advance(struct walk *w)
{
	if (!w)
		return END_CORRUPT;
	if (w->languages.adding)
		return add_functions(w);
	u32 end = step(w);
	if (end == STEP_IN_CODE_MADE)
		return step_in_code_made(w);
	if (!end && w->languages.runs)
		return add_functions(w);
	return end_walk(w, end);
}

#endif
