package targets

import (
	"time"

	"atys.dev/atys/internal/lang"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/wire"
)

// Commands says which processes are short-lived commands, and what is made of them: a build
// starts hundreds of programs that are gone within a window, each a target of its own.
type Commands struct {
	Within   time.Duration // they have lived for less than this
	Together bool          // those of one owner are one target
}

// ShortLived is what short-lived commands are called: as executable of the container, the unit
// or the named service that they ran in, or else as a service.
const ShortLived = "short-lived commands"

// brief reports whether a process is known to be gone, and to have lived for less than a time.
// Its target must have been asked for in this round.
func (ids *identities) brief(pid int, within time.Duration) bool {
	if id := ids.known[pid]; id != nil {
		return id.gone && !id.kernel && wire.SinceBoot()-id.started < within
	}
	// it ended before it was looked at: a list of what runs has all that have lived for longer
	return time.Since(ids.listed)+young < within
}

// together returns the target that a short-lived command is part of.
func (ids *identities) together(pid int) profile.Labels {
	if id := ids.known[pid]; id != nil {
		return id.together
	}
	return ids.service(ShortLived)
}

// ownerOf returns the target of the short-lived commands that have the same owner as a process.
// What the process itself runs is left out; a service that is named after it is, too.
func (ids *identities) ownerOf(s lang.Service) profile.Labels {
	labels := ids.service(ShortLived)
	switch s.Source {
	case lang.FromEnvironment, lang.FromPod, lang.FromContainer, lang.FromUnit:
		labels["service"], labels["executable"] = wire.FitLabel(s.Name), ShortLived
		set(labels, map[string]string{"instance": s.Instance})
	}
	set(labels, map[string]string{"container": s.Container, "unit": s.Unit, "k8s.pod.uid": s.PodUID})
	return labels
}

// set sets the labels that have values.
func set(labels profile.Labels, values map[string]string) {
	for name, value := range values {
		if value != "" {
			labels[name] = wire.FitLabel(value)
		}
	}
}
