// Package live shows where time goes while it goes: a table of functions or threads that is kept up to date on a terminal.
//
// The flow:
//
//	profile.Window -> Digest  what a window says of each function and thread (digest.go)
//	Digests of the last seconds -> Table  (table.go)
//	Table, keys -> Screen -> lines  a pure model of what is on the screen (screen.go)
//	lines -> Terminal  raw mode, keys, the mouse wheel (terminal.go, keys.go)
//
// The terminal is driven by hand: one screen, repainted whole, needs neither
// widgets nor layouts, and a program that people run as root should not bring
// a framework along for them. Names are foreign, so all text goes through
// render.Printable, and nothing else writes to the terminal.
package live

import "time"

// Table is what is shown: the functions and threads of the last seconds.
type Table struct {
	Head      Head       `json:"head"`
	Functions []Function `json:"functions"`          // largest self first
	Threads   []Thread   `json:"threads"`            // most CPU first
	OwnCode   bool       `json:"own_code,omitempty"` // see OwnCode
}

// Head says what was sampled and how well.
type Head struct {
	Target    string        `json:"target"`
	Event     string        `json:"event"`
	Unit      string        `json:"unit"` // of the event's values
	Rate      float64       `json:"rate_hz"`
	Span      time.Duration `json:"span_ns"`
	Samples   int64         `json:"samples"`
	Value     int64         `json:"value"`  // of all samples, in Unit
	CPU       time.Duration `json:"cpu_ns"` // exact, of the target
	Idle      float64       `json:"idle"`   // share of the machine; 0 unless all of it is watched
	Lost      int64         `json:"lost_samples"`
	Truncated int64         `json:"truncated_samples"`
	Unnamed   int64         `json:"unnamed_samples"`
	Lacks     string        `json:"lacks,omitempty"` // what is missing, in words
	Own       float64       `json:"own_cores"`       // CPUs that atys itself uses
	Naming    bool          `json:"-"`               // functions have no names yet: their processes stand for them
}

// Function is one row of functions.
type Function struct {
	Function string  `json:"function"`
	Place    string  `json:"place"` // file:line, or the binary
	Kind     string  `json:"kind"`
	Class    string  `json:"class"` // whose code it is
	Self     float64 `json:"self"`  // shares of all samples
	SelfLow  float64 `json:"self_low"`
	SelfHigh float64 `json:"self_high"`
	Total    float64 `json:"total"`
	Rate     float64 `json:"rate"` // of self: CPUs for clocks, else events a second
	N        int64   `json:"samples"`

	// Own is Self with what it called in code that is not the developers' own:
	// libraries, runtimes, the kernel. A row without a total stands for stacks
	// without any own code; only OwnCode shows it.
	Own     float64 `json:"own"`
	OwnLow  float64 `json:"own_low"`
	OwnHigh float64 `json:"own_high"`
	OwnRate float64 `json:"own_rate"`
	OwnN    int64   `json:"own_samples"`
}

// Thread is one row of threads.
type Thread struct {
	PID     int     `json:"pid"`
	TID     int     `json:"tid"`
	Process string  `json:"process"`
	Name    string  `json:"name"`
	CPU     float64 `json:"cpu"` // CPUs, from exact times
	N       int64   `json:"samples"`
	Top     string  `json:"top"`       // the function it was most in
	TopSelf float64 `json:"top_share"` // of its samples
}
