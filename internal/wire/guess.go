package wire

// Guess decides what of a window's stacks is explained along with it. Where a
// service has many instances, the receiver mostly knows what is new to one of
// them, and asks for the rest: that takes a second trip, but an explanation takes
// several times the window. Where it asks for much, what is new is explained for
// a while, each time for longer. The zero value begins without.
type Guess struct {
	windows int
	explain int // so many windows, before it is tried again without
	wrong   int // times in a row
}

// Manner is what is explained.
type Manner uint8

// Manners.
const (
	ExplainNothing Manner = iota
	ExplainNew            // what the receiver is not thought to know
	ExplainAll            // what was never explained to it: of what others have, it may lack names
)

const (
	mostExplained = 64 // windows, before it is tried again without
	explainAll    = 64 // windows, from one to the next of which all is explained
)

// Next tells the manner of the next window.
func (g *Guess) Next() Manner {
	g.windows++
	switch {
	case g.windows%explainAll == 0:
		return ExplainAll
	case g.explain > 0:
		g.explain--
		return ExplainNew
	}
	return ExplainNothing
}

// Learn hears how many of the stacks that were new, and went without, the
// receiver did not know.
func (g *Guess) Learn(unknown, doubtful int) {
	if unknown*4 <= doubtful {
		g.wrong = 0
		return
	}
	g.wrong++
	g.explain = min(1<<min(g.wrong-1, 10)-1, mostExplained)
}
