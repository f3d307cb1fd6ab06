package whose

import (
	"regexp"
	"strings"
)

// compileGlob makes an expression of a pattern of files, which means what it
// means in .gitignore: * and ? stop at slashes, ** does not; a pattern that
// begins with a slash is anchored there, any other begins at any folder; one
// that ends in a slash is all that lies below.
func compileGlob(pattern string) (*regexp.Regexp, error) {
	var b strings.Builder
	b.WriteString(`(?s)`)
	if strings.HasPrefix(pattern, "/") {
		b.WriteString(`^`)
	} else {
		b.WriteString(`(?:^|/)`)
	}
	for rest := pattern; rest != ""; {
		switch {
		case strings.HasPrefix(rest, "**/"):
			b.WriteString(`(?:.*/)?`)
			rest = rest[3:]
		case strings.HasPrefix(rest, "**"):
			b.WriteString(`.*`)
			rest = rest[2:]
		case rest[0] == '*':
			b.WriteString(`[^/]*`)
			rest = rest[1:]
		case rest[0] == '?':
			b.WriteString(`[^/]`)
			rest = rest[1:]
		default:
			end := strings.IndexAny(rest, "*?")
			if end < 0 {
				end = len(rest)
			}
			b.WriteString(regexp.QuoteMeta(rest[:end]))
			rest = rest[end:]
		}
	}
	if strings.HasSuffix(pattern, "/") {
		b.WriteString(`.`)
	} else {
		b.WriteString(`$`)
	}
	return regexp.Compile(b.String())
}
