// What dlopener loads: two files from this source differ in the names of their functions only.
#include "victim.h"

#ifdef SECOND
#define OUTER second_outer
#define INNER second_inner
enum { OUTER_SITE = 3, INNER_SITE };
#else
#define OUTER first_outer
#define INNER first_inner
enum { OUTER_SITE = 1, INNER_SITE };
#endif

FUNCTION static void INNER(struct burner *b) { burn(b, INNER_SITE, slice(b), OUTER_SITE + 11); }

FUNCTION void OUTER(struct burner *b)
{
	burn(b, OUTER_SITE, slice(b), OUTER_SITE + 13);
	INNER(b);
	NOT_LAST();
}

void plugin_run(struct burner *b)
{
	OUTER(b);
	NOT_LAST();
}
