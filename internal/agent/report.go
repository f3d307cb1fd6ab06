package agent

import (
	"context"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"atys.dev/atys/internal/remote"
	"atys.dev/atys/internal/wire/atysv1"
)

// A report is sent when something has changed, but not more often than this, and
// every so often all the same.
const (
	reportPause = 250 * time.Millisecond
	reportEvery = 10 * time.Second
)

// wakeReport says that there is something to report.
func (a *Agent) wakeReport() {
	select {
	case a.reports <- struct{}{}:
	default:
	}
}

// publish has reports show how tasks fare now.
func (a *Agent) publish() {
	var status []*atysv1.TaskState
	var rates []rate
	for _, t := range a.tasks {
		for _, r := range t.recordings {
			if r.sampler != nil {
				rates = append(rates, rate{r.Task, r.Event, t.profile.Frequency})
			}
		}
		phase, message := t.troubles()
		if phase == phaseRunning && t.targets == 0 && !t.everything() {
			phase = phaseWaiting
		}
		status = append(status, &atysv1.TaskState{Id: t.id, Phase: phase, Message: message, Targets: uint32(t.targets)})
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rates = rates
	if !sameStates(a.status, status) {
		a.status = status
		a.wakeReport()
	}
}

func sameStates(a, b []*atysv1.TaskState) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !proto.Equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

// reportUntil reports until the context ends.
func (a *Agent) reportUntil(ctx context.Context) {
	every := time.NewTicker(reportEvery)
	defer every.Stop()
	for failures := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-a.reports:
		case <-every.C:
		}
		sent := a.options.Now()
		answer, err := a.options.Fleet.Report(ctx, a.report())
		if err == nil && answer.GetReceivedUnixNano() != 0 { // it is answered when it is received
			a.shipper.compare(sent, &atysv1.PushResponse{ReceivedUnixNano: answer.GetReceivedUnixNano(), AnsweredUnixNano: answer.GetReceivedUnixNano()})
		}
		pause := reportPause
		if err != nil {
			failures++
			a.log.Debug("report", "failures", failures, "error", err)
			pause = remote.Backoff(failures)
			a.wakeReport()
		} else {
			failures = 0
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

func (a *Agent) report() *atysv1.ReportRequest {
	spooled, counts := a.options.Spool.Stats(), a.Counts()
	offset, uncertain := a.shipper.clock()
	a.mu.Lock()
	defer a.mu.Unlock()
	return &atysv1.ReportRequest{Node: a.options.Node, Run: a.run[:], Version: a.options.Version, Targets: a.targets, Tasks: a.status,
		State: &atysv1.NodeState{WaitingWindows: uint32(spooled.Records), ShippedWindows: uint64(counts.Shipped),
			LostWindows:   uint64(counts.Refused + counts.Unkept + spooled.Dropped + spooled.Damaged),
			ClockOffsetNs: int64(offset), ClockErrorNs: int64(uncertain), StartedUnixNano: a.began.UnixNano(),
			CpuNs: int64(ownCPU()), MemoryBytes: ownMemory(), MetricsAddress: a.options.Metrics}}
}

// ownCPU is the CPU time that this process has used.
func ownCPU() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// ownMemory is what this process has in memory; 0 if that cannot be read.
func ownMemory() uint64 {
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(data))
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseUint(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * uint64(os.Getpagesize())
}
