package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"net/url"
	"strings"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/wire/atysv1"
)

// Limits of what one request may hold. Agents stay far below them.
const (
	MaxRequest = 16 << 20       // bytes, before and after compression
	MaxWaiting = 8 * MaxRequest // of all requests that came and are not answered yet
	MaxJSON    = 1 << 20        // of them, if it is JSON
	MaxWindows = 10_000         // and as many that these contain, series, and targets of an agent
	MaxParts   = 1 << 20        // messages, labels and strings within it: a call of a stack is one
	maxLabels  = 32
	// MaxLabel is how long the name or the value of a label may be.
	MaxLabel = 256
	// maxText is how many bytes are kept of what is said about a window: who seals
	// one cuts the rest off.
	maxText = 1 << 10
)

// CheckPush checks the windows of a request with their series, and returns the stacks that their
// rows point at. Learn checks its dictionary, Records its records with their series. Sent again,
// what is wrong will be wrong again. It drops peers and exemplars that an earlier relay has confused.
func CheckPush(r *atysv1.PushRequest) (hashes []profile.Hash, err error) {
	dropMisnumbered(r)
	if n := len(r.GetWindows()); n > MaxWindows {
		return nil, fmt.Errorf("%d windows in one request: at most %d are taken", n, MaxWindows)
	}
	if n := len(r.GetSeries()); n > MaxWindows {
		return nil, fmt.Errorf("%d series in one request: at most %d are taken", n, MaxWindows)
	}
	if n := contained(r); n > MaxWindows {
		return nil, fmt.Errorf("%d windows that others contain in one request: at most %d are taken", n, MaxWindows)
	}
	if hashes, err = Hashes(r.GetStacks()); err != nil {
		return nil, err
	}
	if err := checkSeries(r); err != nil {
		return nil, err
	}
	for i, m := range r.GetWindows() {
		if err := checkHead(m); err != nil {
			return nil, fmt.Errorf("window %d: %w", i, err)
		}
		if err := CheckRows(m, len(hashes)); err != nil {
			return nil, fmt.Errorf("window %d: %w", i, err)
		}
		for _, p := range m.GetContains() {
			if len(p.GetRun()) != len(profile.Run{}) {
				return nil, fmt.Errorf("window %d contains one of a run of %d bytes", i, len(p.GetRun()))
			}
			if after := p.GetAfterNs(); after < 0 || after > m.GetDurationNs() {
				return nil, fmt.Errorf("window %d lasts %d ns, and contains one that begins %d ns after it", i, m.GetDurationNs(), after)
			}
		}
	}
	return hashes, nil
}

// checkSeries refuses windows whose series are missing or malformed. It leaves out series of
// records only: no window is refused for a record.
func checkSeries(r *atysv1.PushRequest) error {
	series := r.GetSeries()
	checked := make([]bool, len(series))
	check := func(window int, n uint32) error {
		if int64(n) >= int64(len(series)) {
			return fmt.Errorf("window %d: series %d of %d", window, n, len(series))
		}
		if checked[n] {
			return nil
		}
		checked[n] = true
		if err := CheckLabels(series[n].GetLabels()); err != nil {
			return fmt.Errorf("series %d: %w", n, err)
		}
		return nil
	}
	for i, m := range r.GetWindows() {
		if err := check(i, m.GetSeries()); err != nil {
			return err
		}
		for _, p := range m.GetContains() {
			if err := check(i, p.GetSeries()); err != nil {
				return err
			}
		}
	}
	return nil
}

// contained counts the windows that those of a request contain.
func contained(r *atysv1.PushRequest) (n int) {
	for _, m := range r.GetWindows() {
		n += len(m.GetContains())
	}
	return n
}

// checkHead refuses what is said about a window and takes more room than what was
// sampled of it. Answers are not held to it: they are of many windows.
func checkHead(m *atysv1.Window) error {
	names := [][2]string{{"task", m.GetTask()}, {"design", m.GetDesign()}, {"source of exact times", m.GetExact().GetSource()}}
	for _, t := range m.GetTypes() {
		names = append(names, [2]string{"kind of values", t.GetKind()}, [2]string{"unit of values", t.GetUnit()}, [2]string{"base of values", t.GetBase()})
	}
	for _, name := range names {
		if n := len(name[1]); n > MaxLabel {
			return fmt.Errorf("its %s, %.40q, has %d bytes: at most %d are taken", name[0], name[1], n, MaxLabel)
		}
	}
	if n := len(m.GetLosses()); n > profile.MaxLosses {
		return fmt.Errorf("%d losses: at most %d are taken", n, profile.MaxLosses)
	}
	if n := len(m.GetComments()); n > profile.MaxComments {
		return fmt.Errorf("%d comments: at most %d are taken", n, profile.MaxComments)
	}
	if err := CheckRate(m.GetRate()); err != nil {
		return err
	}
	for i, l := range m.GetLosses() {
		if len(l.GetReason()) > MaxLabel || len(l.GetDetail()) > maxText {
			return fmt.Errorf("loss %d, %.40q, has a reason of %d bytes and a detail of %d: at most %d and %d are taken", i, l.GetReason(), len(l.GetReason()), len(l.GetDetail()), MaxLabel, maxText)
		}
	}
	for i, c := range m.GetComments() {
		if len(c) > maxText {
			return fmt.Errorf("comment %d, %.40q, has %d bytes: at most %d are taken", i, c, len(c), maxText)
		}
	}
	return nil
}

// CheckRate refuses what nothing can be sampled at, and words about it that take
// more room than there is.
func CheckRate(m *atysv1.Rate) error {
	if hertz := m.GetHertz(); !(hertz >= 0) || math.IsInf(hertz, 0) { // nor is NaN
		return fmt.Errorf("a rate of %v Hz: want a number that is not negative", hertz)
	}
	if err := CheckNames(m.GetPolicy(), m.GetReason(), m.GetBy()); err != nil {
		return fmt.Errorf("of a rate: %w", err)
	}
	if n := len(m.GetWhy()); n > maxText {
		return fmt.Errorf("why a rate is what it is, %.40q, has %d bytes: at most %d are taken", m.GetWhy(), n, maxText)
	}
	return nil
}

// CheckNames refuses what nothing may be called.
func CheckNames(names ...string) error {
	for _, name := range names {
		if len(name) > MaxLabel {
			return fmt.Errorf("%.40q has %d bytes: at most %d are taken of a name", name, len(name), MaxLabel)
		}
	}
	return nil
}

// CheckAddress refuses what no relay can be found at.
func CheckAddress(address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || len(address) > MaxLabel {
		return fmt.Errorf("%.80q: want an address such as https://10.0.0.7:4310", address)
	}
	return nil
}

// CheckLabels refuses what nothing may be labelled.
func CheckLabels(labels profile.Labels) error {
	if len(labels) > maxLabels {
		return fmt.Errorf("%d labels: at most %d are taken", len(labels), maxLabels)
	}
	for name, value := range labels {
		if name == "" || len(name) > MaxLabel || len(value) > MaxLabel {
			return fmt.Errorf("label %.40q of %d bytes with a value of %d: names are needed, and at most %d bytes are taken of each", name, len(name), len(value), MaxLabel)
		}
	}
	return nil
}

// FitLabel makes a name that somebody else has given fit to be a label's value: text
// that is not too long. One that is cut keeps a part of its hash, so that two stay two.
func FitLabel(value string) string {
	value = strings.ToValidUTF8(value, "\ufffd")
	if len(value) <= MaxLabel {
		return value
	}
	sum := sha256.Sum256([]byte(value))
	end := "..." + hex.EncodeToString(sum[:4])
	return strings.ToValidUTF8(value[:MaxLabel-len(end)], "") + end // not half a character at its end
}
