package house

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	fenced  = regexp.MustCompile("(?ms)^```.*?^```$")
	dropped = regexp.MustCompile(`[^\p{L}\p{N}_\- ]`)
)

// checkLinks fails a link of a document that leads to no file of the tree, or to no
// heading of it. Pictures are no text, and are not looked for.
func checkLinks(t *Tree) (bad []Violation) {
	for _, f := range t.Texts {
		if path.Ext(f.Path) != ".md" {
			continue
		}
		prose := fenced.ReplaceAllFunc(f.Data, func(block []byte) []byte { // whose lines are counted all the same
			return bytes.Repeat([]byte("\n"), bytes.Count(block, []byte("\n")))
		})
		for i, line := range strings.Split(string(prose), "\n") {
			for _, m := range link.FindAllStringSubmatch(line, -1) {
				if why := t.leadsNowhere(f.Path, m[1]); why != "" {
					bad = append(bad, Violation{f.Path, i + 1, fmt.Sprintf("the link %q leads to %s", m[1], why)})
				}
			}
		}
	}
	return bad
}

// leadsNowhere says what a link lacks, of a document's; nothing if it leads somewhere.
func (t *Tree) leadsNowhere(from, target string) string {
	file, anchor, _ := strings.Cut(target, "#")
	switch {
	case strings.Contains(target, "://"), strings.HasPrefix(target, "mailto:"), path.Ext(file) == ".png":
		return ""
	case file == "":
		file = from
	default:
		file = path.Join(path.Dir(from), file)
	}
	if slices.Contains(t.Dirs, file) {
		return ""
	}
	i := slices.IndexFunc(t.Texts, func(f Text) bool { return f.Path == file })
	if i < 0 {
		return "no file " + file
	}
	if anchor != "" && path.Ext(file) == ".md" && !slices.Contains(anchors(t.Texts[i].Data), anchor) {
		return "no heading of " + file
	}
	return ""
}

// anchors are what a document's headings are called in links: as hosts of
// repositories make them.
func anchors(data []byte) (all []string) {
	for _, m := range heading.FindAllSubmatch(fenced.ReplaceAll(data, nil), -1) {
		text := dropped.ReplaceAllString(strings.ToLower(string(m[1])), "")
		all = append(all, strings.ReplaceAll(text, " ", "-"))
	}
	return all
}
