package profile

import "slices"

// TooShortLived is why most CPU time is not sampled that is not: the detail of its loss.
const TooShortLived = "threads too short-lived"

// Comments by which earlier versions stated facts that are fields now.
const (
	farewellComment  = "the recording ended with this window, as it was told to"
	partOfCPUComment = "only user code, or only the kernel, was sampled"
)

// MarkPartOfCPU records that only user code, or only kernel code, was sampled: the samples
// are no part of an exact total then.
func (h *Head) MarkPartOfCPU() {
	for i := range h.Types {
		if h.Types[i].Base == BaseCPU {
			h.Types[i].Base = BaseNone
		}
	}
	h.AddComment(partOfCPUComment)
}

// ReadComments turns comments into fields that earlier versions had no fields for. Readers
// of stored and sent windows call it.
func (h *Head) ReadComments() {
	if slices.Contains(h.Comments, partOfCPUComment) {
		h.MarkPartOfCPU()
	}
	if i := slices.Index(h.Comments, farewellComment); i >= 0 {
		h.Farewell = true
		h.Comments = slices.Delete(slices.Clone(h.Comments), i, i+1)
	}
}

// OldComments returns the comments of a window as peers of earlier versions expect them.
func (h *Head) OldComments() []string {
	if !h.Farewell {
		return h.Comments
	}
	return append([]string{farewellComment}, h.Comments...)
}
