// Package rows has unwinding tables: rows of an offset and a rule, how sources
// are merged into one table, how it is searched and how it is encoded.
//
// A row is 64 bits, so that sorting by number sorts by file offset:
//
//	 63                            32 31  28 27     20 19                0
//	+--------------------------------+------+---------+------------------+
//	|          file offset           | type |   rbp   |       cfa        |
//	+--------------------------------+------+---------+------------------+
//
// It holds from its offset up to the next row's. The lower half is the Rule;
// its numbers and their meaning are written down in
// internal/bpf/include/unwind_rules.h, which the BPF unwinder includes.
package rows

// Type says how a rule finds the canonical frame address (cfa).
type Type uint8

// The types; their numbers and exact meaning are those of unwind_rules.h.
const (
	Gap          Type = 0  // nothing known
	SP           Type = 1  // cfa = rsp + 8*cfa
	BP           Type = 2  // cfa = rbp + 8*cfa
	PLT          Type = 3  // cfa = rsp + 8, 8 more once ip&15 >= cfa
	Signal       Type = 4  // registers are in the ucontext at rsp
	Unsupported  Type = 5  // there is a rule, we cannot express it
	End          Type = 6  // outermost frame
	BPDeref      Type = 7  // cfa = *(rbp + 8*low16) + 8*high4
	FramePointer Type = 8  // cfa = rbp + 16, rbp at cfa-16
	SPDeref      Type = 9  // cfa = *(rsp + 8*low16) + 8*high4
	LeafReg      Type = 10 // cfa = register high4 + 8*low16
	ReturnReg    Type = 11 // cfa = rsp + 8*low16, return address in register high4
	Fork         Type = 12 // as SP, but the outermost frame where rax is 0
)

// What the rbp field of a rule can say besides a slot number.
const (
	RBPSame  = 0   // rbp still holds the caller's value
	RBPMax   = 250 // highest n of "saved at cfa - 8*n"
	RBPLost  = 254 // the caller's rbp cannot be found
	RBPAtRBP = 255 // saved where rbp points
)

// The highest values of a rule's cfa field, and of its upper part where it has two.
const (
	MaxCFA  = 1<<rbpShift - 1
	MaxHigh = 0xf
)

const (
	typeShift = 28
	rbpShift  = 20
	rbpMask   = 0xff
	highShift = 16
	lowMask   = 1<<highShift - 1
)

// Rule tells how to leave a frame: type (4 bits), rbp (8), cfa (20).
type Rule uint32

// Row is a file offset (high half) and the Rule that holds from there on.
type Row uint64

// NewRule makes a rule of its three fields.
func NewRule(t Type, rbp uint8, cfa uint32) Rule {
	return Rule(t)<<typeShift | Rule(rbp)<<rbpShift | Rule(cfa&MaxCFA)
}

// NewSplitRule makes a rule whose cfa field has two parts.
func NewSplitRule(t Type, rbp, high uint8, low int64) Rule {
	return NewRule(t, rbp, uint32(high)<<highShift|uint32(low)&lowMask)
}

// NewRow makes the row of a rule that holds from off on.
func NewRow(off uint32, r Rule) Row { return Row(off)<<32 | Row(r) }

// Offset is the file offset from which the row holds.
func (r Row) Offset() uint32 { return uint32(r >> 32) }

// Rule is the row's rule.
func (r Row) Rule() Rule { return Rule(r) }

// Type is how the rule finds the cfa.
func (r Rule) Type() Type { return Type(r >> typeShift) }

// RBP says where the caller's rbp is: one of the RBP constants, or n for
// "saved at cfa - 8*n".
func (r Rule) RBP() uint8 { return uint8(r >> rbpShift) }

// CFA is the raw cfa field.
func (r Rule) CFA() uint32 { return uint32(r & MaxCFA) }

// High is the upper part of the cfa field in rules of the types BPDeref,
// SPDeref, LeafReg and ReturnReg.
func (r Rule) High() uint8 { return uint8(r >> highShift & MaxHigh) }

// Low is the lower part of the cfa field in rules of those types.
func (r Rule) Low() int16 { return int16(r & lowMask) }
