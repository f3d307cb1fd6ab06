package whose

import "atys.dev/atys/internal/profile"

// ruleset finds the first rule that matches. Rules are some hundred patterns
// and frames are many, but they share files and binaries: what those matchers
// say is remembered.
type ruleset struct {
	rules    []rule
	files    memory
	binaries memory
	others   []int // rules of all other matchers, by index
}

// memory answers by one matcher, once per text.
type memory struct {
	rules []int // by index
	first map[string]int
}

// maxRemembered bounds a memory: names are foreign, and scripts may be made at
// run time for ever.
const maxRemembered = 1 << 16

func newRuleset(r *Rules) *ruleset {
	s := &ruleset{}
	if r == nil {
		return s
	}
	s.rules = r.rules
	for i, rule := range s.rules {
		switch rule.matcher {
		case byFile:
			s.files.rules = append(s.files.rules, i)
		case byBinary:
			s.binaries.rules = append(s.binaries.rules, i)
		default:
			s.others = append(s.others, i)
		}
	}
	return s
}

// class is the first matching rule's; false if none matches.
func (r *ruleset) class(s subject) (profile.Class, bool) {
	first := min(r.remembered(&r.files, s.file, s), r.remembered(&r.binaries, s.binary, s))
	first = min(first, r.firstOf(r.others, s, first))
	if first == len(r.rules) {
		return profile.ClassUnknown, false
	}
	return r.rules[first].class, true
}

func (r *ruleset) remembered(m *memory, text string, s subject) int {
	if len(m.rules) == 0 || text == "" {
		return len(r.rules)
	}
	first, ok := m.first[text]
	if !ok {
		first = r.firstOf(m.rules, s, len(r.rules))
		if m.first == nil || len(m.first) == maxRemembered {
			m.first = map[string]int{}
		}
		m.first[text] = first
	}
	return first
}

// firstOf is the first of some rules that matches, looking at those before a
// limit only; else the number of all rules.
func (r *ruleset) firstOf(rules []int, s subject, limit int) int {
	for _, i := range rules {
		if i >= limit {
			break
		}
		for _, p := range r.rules[i].patterns {
			if p.matches(r.rules[i].matcher, s) {
				return i
			}
		}
	}
	return len(r.rules)
}
