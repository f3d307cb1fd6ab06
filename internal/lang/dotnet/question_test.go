package dotnet

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"atys.dev/atys/test/testwait"
)

// reply is a message of a runtime.
func reply(set, id byte, payload ...byte) []byte {
	b := append([]byte(messageMagic), byte(messageHead+len(payload)), 0, set, id, 0, 0)
	return append(b, payload...)
}

// runtimeOf pretends to be one: it answers each connection by its command, and
// reports a trace that is left before its end.
func runtimeOf(t *testing.T, answers map[byte][]byte) func() (net.Conn, error) {
	stopped := make(chan struct{})
	return func() (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() {
			defer theirs.Close()
			head := make([]byte, messageHead)
			if _, err := io.ReadFull(theirs, head); err != nil {
				return
			}
			payload := make([]byte, int(le.Uint16(head[14:]))-messageHead)
			if _, err := io.ReadFull(theirs, payload); err != nil {
				return
			}
			switch set, command := head[16], head[17]; {
			case set == setOfProcess:
				_, _ = theirs.Write(answers[greeting])
			case command == stopTrace:
				if string(payload) != "session1" {
					t.Errorf("it is told to end the trace %q", payload)
				}
				_, _ = theirs.Write(answers[stopTrace])
				close(stopped)
			default:
				if _, err := theirs.Write(answers[beginTrace]); err != nil || len(answers[beginTrace]) < messageHead+8 {
					return
				}
				<-stopped
				if _, err := theirs.Write([]byte("trace")); err != nil {
					t.Errorf("the trace was left before its end: %v", err)
				}
			}
		}()
		return ours, nil
	}
}

// greeting stands for the first command among the others.
const greeting = 99

func TestAsk(t *testing.T) {
	session := reply(setOfReplies, replyFine, []byte("session1")...)
	unknown := reply(setOfReplies, 0xff, 0x85, 0x13, 0x13, 0x80)
	for _, tt := range []struct {
		name    string
		answers map[byte][]byte
		want    string
		err     string
	}{
		{"fine", map[byte][]byte{greeting: unknown, beginTrace: session, stopTrace: session}, "trace", ""},
		{"later version", map[byte][]byte{greeting: reply(setOfReplies, replyFine, 1, 2), beginTrace: session, stopTrace: session}, "trace", ""},
		{"refused", map[byte][]byte{greeting: unknown, beginTrace: reply(setOfReplies, 0xff, 1, 2, 3, 4)}, "", "refused with 0x01020304"},
		{"no session", map[byte][]byte{greeting: unknown, beginTrace: reply(setOfReplies, replyFine)}, "", "which trace"},
		{"not .NET", map[byte][]byte{greeting: []byte("HTTP/1.1 400 Bad Request\r\n")}, "", "not .NET"},
		{"silent", map[byte][]byte{}, "", "EOF"},
		{"stop not answered", map[byte][]byte{greeting: unknown, beginTrace: session}, "trace", "EOF"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := new(Asker).ask(t.Context(), runtimeOf(t, tt.answers))
			if string(got) != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("got error %v, want %q", err, tt.err)
			}
		})
	}
}

// TestAskNobody asserts that one that accepts and is silent is not asked to
// begin a trace.
func TestAskNobody(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	connections := 0
	_, err := new(Asker).ask(ctx, func() (net.Conn, error) {
		connections++
		ours, theirs := net.Pipe()
		t.Cleanup(func() { theirs.Close() })
		return ours, nil
	})
	if !errors.Is(err, os.ErrDeadlineExceeded) || connections != 1 {
		t.Errorf("got error %v after %d connections", err, connections)
	}
}

// TestAskIsNotBrokenOff asserts that a trace is ended in order though nobody
// waits for it any more.
func TestAskIsNotBrokenOff(t *testing.T) {
	session := reply(setOfReplies, replyFine, []byte("session1")...)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	connections, ended := 0, make(chan error, 1)
	var asker Asker
	_, err := asker.ask(ctx, func() (net.Conn, error) {
		connections++
		ours, theirs := net.Pipe()
		which := connections
		go func() {
			defer theirs.Close()
			message := make([]byte, 1000)
			if _, err := theirs.Read(message); err != nil {
				ended <- err
				return
			}
			if which == 2 { // the trace: the question is given up before it is answered
				cancel()
				time.Sleep(20 * time.Millisecond)
			}
			_, err := theirs.Write(session)
			if which == 2 {
				return
			}
			if which == 3 {
				ended <- err
			}
		}()
		return ours, nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v", err)
	}
	if asker.Finish(time.Millisecond) {
		t.Error("the question had ended before it was answered")
	}
	if !asker.Finish(time.Minute) {
		t.Error("the question did not end")
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the trace was not ended: %v", err)
		}
	case <-time.After(testwait.Longest(t)):
		t.Error("the trace was not ended")
	}
}

func TestIsSocketOf(t *testing.T) {
	for name, want := range map[string]bool{
		"dotnet-diagnostic-12-407996-socket":  true,
		"dotnet-diagnostic-123-407996-socket": false,
		"dotnet-diagnostic-12--socket":        false,
		"dotnet-diagnostic-12-x-socket":       false,
		"dotnet-diagnostic-12-407996":         false,
		"clr-debug-pipe-12-407996-in":         false,
	} {
		if got := isSocketOf(name, 12); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestDialChecksListener asserts that only the process itself is asked, by a
// socket of its own, whatever lies beside it.
func TestDialChecksListener(t *testing.T) {
	directory := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(directory, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.Symlink("s", filepath.Join(directory, "link")); err != nil {
		t.Fatal(err)
	}
	at, err := os.Open(directory)
	if err != nil {
		t.Fatal(err)
	}
	defer at.Close()
	for _, tt := range []struct {
		name string
		pid  int
		ok   bool
	}{{"s", os.Getpid(), true}, {"s", os.Getpid() + 1, false}, {"link", os.Getpid(), false}} {
		c, err := dial(t.Context(), at, tt.name, tt.pid)
		if (err == nil) != tt.ok {
			t.Errorf("%s of %d: %v", tt.name, tt.pid, err)
		}
		if err == nil {
			c.Close()
		}
	}
}

// FuzzReply asserts that what is taken for a reply has the size it says.
func FuzzReply(f *testing.F) {
	f.Add(reply(setOfReplies, replyFine, []byte("session1")...))
	f.Add(reply(setOfReplies, 0xff, 1, 2))
	f.Fuzz(func(t *testing.T, data []byte) {
		payload, err := readReply(bytes.NewReader(data))
		if err == nil && int(le.Uint16(data[len(messageMagic):])) != messageHead+len(payload) {
			t.Errorf("%d bytes of %q", len(payload), data)
		}
	})
}
