package dotnet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
	"unicode/utf16"
)

// Messages of the runtime's diagnostics (ipc-protocol.md of dotnet/diagnostics):
// magic (14 bytes), size of all (2), set of commands, command, reserved (2), payload.
const (
	messageMagic  = "DOTNET_IPC_V1\x00"
	messageHead   = len(messageMagic) + 6
	setOfProcess  = 4
	processInfo   = 0
	setOfTraces   = 2
	stopTrace     = 1
	beginTrace    = 2
	setOfReplies  = 0xff
	replyFine     = 0
	formatOfTrace = 1 // Nettrace

	bufferMegabytes = 16       // in the runtime, while it writes
	maxAnswer       = 64 << 20 // some 300,000 methods
)

// Asker asks. The zero value is ready.
type Asker struct {
	begun sync.WaitGroup // questions whose end has not come, also those that nobody waits for any more
}

// Ask asks the runtime of a process for its methods. That starts a trace of the
// runtime and ends it at once: with its end come all methods there are. Nothing
// is loaded into the process.
//
// Who leaves before it told a trace to end can crash .NET Core 3.1: 3.1.23 died
// of the second such connection that was closed before the reply to its
// beginning, and within 27 that were closed after it; not of 40 that were closed
// once the end was asked for, nor of 1,300 whole questions. So a question is only begun where the runtime answers quickly, the
// way to end it is open before, and once begun it is not given up: the context
// ends only the wait for its answer.
func (a *Asker) Ask(ctx context.Context, pid int) (Methods, error) {
	answer, err := a.ask(ctx, func() (net.Conn, error) { return connect(ctx, pid) })
	if len(answer) > 0 {
		methods, parseErr := Parse(answer)
		if err = errors.Join(err, parseErr); err == nil {
			return methods, nil
		}
		return methods, fmt.Errorf("ask .NET of process %d for its methods: %w", pid, err)
	}
	return Methods{}, fmt.Errorf("ask .NET of process %d for its methods: %w", pid, err)
}

// Finish waits until all questions that were begun have ended, or for as long as
// it may; it tells whether they have. A process that leaves before that can
// crash who it asked.
func (a *Asker) Finish(patience time.Duration) bool {
	ended := make(chan struct{})
	go func() {
		a.begun.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return true
	case <-time.After(patience):
		return false
	}
}

// conversation is a trace that was begun or is about to be.
type conversation struct {
	trace, stop net.Conn
}

func (a *Asker) ask(ctx context.Context, connect func() (net.Conn, error)) ([]byte, error) {
	if err := greet(ctx, connect); err != nil {
		return nil, err
	}
	var c conversation
	var err error
	if c.trace, err = connect(); err != nil {
		return nil, err
	}
	if c.stop, err = connect(); err != nil {
		c.trace.Close()
		return nil, err
	}
	type result struct {
		answer []byte
		err    error
	}
	done := make(chan result, 1)
	a.begun.Go(func() {
		answer, err := c.hold()
		done <- result{answer, err}
	})
	select {
	case r := <-done:
		return r.answer, r.err
	case <-ctx.Done():
		return nil, fmt.Errorf("no answer yet: %w", ctx.Err())
	}
}

// greet asks for what a runtime answers in any case, if only that it does not
// know the question: one that is stopped or hangs is not to be asked more.
func greet(ctx context.Context, connect func() (net.Conn, error)) error {
	c, err := connect()
	if err != nil {
		return err
	}
	defer c.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := c.SetDeadline(deadline); err != nil {
			return err
		}
	}
	var refused refusal
	if _, err = send(c, setOfProcess, processInfo, nil); errors.As(err, &refused) {
		return nil
	}
	return err
}

// hold begins and ends a trace, however long that takes.
func (c conversation) hold() ([]byte, error) {
	defer c.trace.Close()
	defer c.stop.Close()
	session, err := send(c.trace, setOfTraces, beginTrace, beginPayload())
	if err != nil {
		return nil, err
	}
	if len(session) != 8 {
		return nil, errors.New("it did not say which trace it began")
	}
	stopped := make(chan error, 1)
	go func() {
		_, err := send(c.stop, setOfTraces, stopTrace, session)
		stopped <- err
	}()
	answer, err := io.ReadAll(io.LimitReader(c.trace, maxAnswer))
	if err == nil {
		_, err = io.Copy(io.Discard, c.trace)
	}
	return answer, errors.Join(err, <-stopped)
}

// beginPayload asks for a trace of nothing but what there is at its end: size of
// the buffer, format, providers; each with keywords, level, name and filter.
func beginPayload() []byte {
	const (
		keywordsOfMethods = 0x10 | 0x20 // compiled at run time, compiled ahead
		verbose           = 5           // with names
	)
	b := le.AppendUint32(nil, bufferMegabytes)
	b = le.AppendUint32(b, formatOfTrace)
	b = le.AppendUint32(b, 1)
	b = le.AppendUint64(b, keywordsOfMethods)
	b = le.AppendUint32(b, verbose)
	b = appendText(b, rundownProvider)
	return le.AppendUint32(b, 0)
}

// appendText writes a string: its length with the zero at the end, UTF-16.
func appendText(b []byte, s string) []byte {
	units := append(utf16.Encode([]rune(s)), 0)
	b = le.AppendUint32(b, uint32(len(units)))
	for _, u := range units {
		b = le.AppendUint16(b, u)
	}
	return b
}

// send sends a command and gives the payload of its reply.
func send(c net.Conn, set, command byte, payload []byte) ([]byte, error) {
	message := append([]byte(messageMagic), 0, 0, set, command, 0, 0)
	le.PutUint16(message[len(messageMagic):], uint16(messageHead+len(payload)))
	if _, err := c.Write(append(message, payload...)); err != nil {
		return nil, err
	}
	return readReply(c)
}

// refusal is what a runtime answers to a command that it does not carry out.
type refusal []byte

func (r refusal) Error() string { return fmt.Sprintf("it refused with %#x", []byte(r)) }

func readReply(r io.Reader) ([]byte, error) {
	head := make([]byte, messageHead)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	size := int(le.Uint16(head[len(messageMagic):]))
	if string(head[:len(messageMagic)]) != messageMagic || size < messageHead {
		return nil, errors.New("what answers is not .NET")
	}
	payload := make([]byte, size-messageHead)
	if _, err := io.ReadFull(r, payload); err != nil {
		return nil, err
	}
	set, reply := head[messageHead-4], head[messageHead-3]
	if set != setOfReplies || reply != replyFine {
		return nil, refusal(payload[:min(len(payload), 4)])
	}
	return payload, nil
}

// Patience is how long an answer may take: a runtime with 20,000 methods needs
// less than a second.
const Patience = 2 * time.Second
