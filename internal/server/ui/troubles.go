package ui

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"atys.dev/atys/internal/health"
	"atys.dev/atys/internal/wire/atysv1"
)

// troubles are the conditions that agents report, as the page shows them.
type troubles struct {
	Line  string // a summary; empty: there are none
	Items []string
}

// mostTroubles bounds the list: a whole fleet may be over its budget.
const mostTroubles = 20

// troublesOf lists the conditions that agents report, by node. of counts agents by
// condition, under "" all of them.
func troublesOf(agents []*atysv1.AgentStatus, of map[string]int) (t troubles) {
	if len(agents) == 0 {
		return troubles{}
	}
	var kinds []string
	for _, kind := range health.Kinds() {
		if n := of[string(kind)]; n > 0 {
			kinds = append(kinds, string(kind))
		}
	}
	t.Line = fmt.Sprintf("%d of %d agents report trouble", len(agents), of[""])
	if len(kinds) > 0 {
		t.Line += ": " + strings.Join(kinds, ", ")
	}
	for _, a := range agents {
		for _, c := range a.GetState().GetConditions() {
			if len(t.Items) == mostTroubles {
				t.Items = append(t.Items, "and more: atys get agents")
				return t
			}
			t.Items = append(t.Items, fmt.Sprintf("%s, since %s: %s (%s)", a.GetNode(), time.Unix(0, c.GetSinceUnixNano()).UTC().Format("15:04:05 MST"), c.GetMessage(), cmp.Or(c.GetFix(), "atys describe agent "+a.GetNode())))
		}
	}
	return t
}
