package dotnet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
	"unicode/utf16"
)

// Messages of the runtime's diagnostics (ipc-protocol.md of dotnet/diagnostics):
// magic (14 bytes), size of all (2), set of commands, command, reserved (2), payload.
const (
	messageMagic  = "DOTNET_IPC_V1\x00"
	messageHead   = len(messageMagic) + 6
	setOfTraces   = 2
	stopTrace     = 1
	beginTrace    = 2
	setOfReplies  = 0xff
	replyFine     = 0
	formatOfTrace = 1 // Nettrace

	bufferMegabytes = 16       // in the runtime, while it writes
	maxAnswer       = 64 << 20 // some 300,000 methods
)

// Ask asks the runtime of a process for its methods, until the context ends.
// That starts a trace of the runtime and ends it at once: with its end come all
// methods there are. Nothing is loaded into the process, and a connection that
// breaks ends the trace.
func Ask(ctx context.Context, pid int) (Methods, error) {
	answer, err := ask(ctx, func() (net.Conn, error) { return connect(ctx, pid) })
	if err != nil && len(answer) == 0 {
		return Methods{}, fmt.Errorf("ask .NET of process %d for its methods: %w", pid, err)
	}
	methods, parseErr := Parse(answer)
	if err = errors.Join(err, parseErr); err != nil {
		err = fmt.Errorf("ask .NET of process %d for its methods: %w", pid, err)
	}
	return methods, err
}

func ask(ctx context.Context, connect func() (net.Conn, error)) ([]byte, error) {
	trace, err := connect()
	if err != nil {
		return nil, err
	}
	defer trace.Close()
	session, err := send(ctx, trace, beginTrace, beginPayload())
	if err != nil {
		return nil, err
	}
	if len(session) != 8 {
		return nil, errors.New("it did not say which trace it began")
	}
	stopped := make(chan error, 1)
	go func() { stopped <- stop(ctx, connect, session) }()
	answer, err := io.ReadAll(io.LimitReader(trace, maxAnswer))
	return answer, errors.Join(err, <-stopped)
}

// stop ends a trace; the runtime answers when it is written.
func stop(ctx context.Context, connect func() (net.Conn, error), session []byte) error {
	c, err := connect()
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = send(ctx, c, stopTrace, session)
	return err
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
func send(ctx context.Context, c net.Conn, command byte, payload []byte) ([]byte, error) {
	if deadline, ok := ctx.Deadline(); ok {
		if err := c.SetDeadline(deadline); err != nil {
			return nil, err
		}
	}
	message := append([]byte(messageMagic), 0, 0, setOfTraces, command, 0, 0)
	le.PutUint16(message[len(messageMagic):], uint16(messageHead+len(payload)))
	if _, err := c.Write(append(message, payload...)); err != nil {
		return nil, err
	}
	return readReply(c)
}

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
		return nil, fmt.Errorf("it refused with %#x", payload[:min(len(payload), 4)])
	}
	return payload, nil
}

// Patience is how long an answer may take: a runtime with 20,000 methods needs
// less than a second.
const Patience = 2 * time.Second
