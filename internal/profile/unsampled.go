package profile

import "slices"

// TooShortLived is why most CPU time is not sampled that is not: the detail of its loss.
const TooShortLived = "threads too short-lived"

// partOfCPU is what a window says whose samples are of a part of the CPU time. As
// farewell, it is a comment.
const partOfCPU = "only user code, or only the kernel, was sampled"

// SayPartOfCPU has a window say that not all CPU time was to be sampled: the exact
// time is of all.
func (h *Head) SayPartOfCPU() {
	if !h.PartOfCPU() {
		h.Comments = append(h.Comments, partOfCPU)
	}
}

// PartOfCPU tells whether SayPartOfCPU was called.
func (h *Head) PartOfCPU() bool { return slices.Contains(h.Comments, partOfCPU) }
