package live

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Terminal is a terminal taken over: raw, on its alternate screen, until Close.
type Terminal struct {
	in, out *os.File
	before  unix.Termios
	keys    chan Key
	resized chan os.Signal
	stop    chan struct{}
	done    sync.WaitGroup
}

const (
	// Alternate screen, no cursor, wheel reports (SGR form).
	enter = "\x1b[?1049h\x1b[?25l\x1b[?1000h\x1b[?1006h\x1b[2J"
	leave = "\x1b[?1006l\x1b[?1000l\x1b[?25h\x1b[?1049l"
	// Terminals that know them draw what is between these at once.
	beginDraw = "\x1b[?2026h\x1b[H"
	endDraw   = "\x1b[J\x1b[?2026l"
)

// Open takes a terminal over: keys are read from in, which is a terminal, and
// out, another or the same, is drawn on.
func Open(in, out *os.File) (*Terminal, error) {
	before, err := unix.IoctlGetTermios(int(in.Fd()), unix.TCGETS)
	if err != nil {
		return nil, fmt.Errorf("read terminal settings: %w", err)
	}
	raw := *before
	raw.Lflag &^= unix.ECHO | unix.ICANON | unix.ISIG | unix.IEXTEN
	raw.Iflag &^= unix.IXON | unix.ICRNL
	raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 0, 1 // reads end after 0.1 s, so that the reader can end too
	if err := unix.IoctlSetTermios(int(in.Fd()), unix.TCSETS, &raw); err != nil {
		return nil, fmt.Errorf("set terminal to raw mode: %w", err)
	}
	t := &Terminal{in: in, out: out, before: *before, keys: make(chan Key, 64),
		resized: make(chan os.Signal, 1), stop: make(chan struct{})}
	if _, err := out.WriteString(enter); err != nil {
		return nil, errors.Join(fmt.Errorf("write to terminal: %w", err), t.restore())
	}
	signal.Notify(t.resized, unix.SIGWINCH)
	t.done.Go(t.read)
	return t, nil
}

// Keys gives what is pressed; it is closed when the terminal is gone.
func (t *Terminal) Keys() <-chan Key { return t.keys }

// Resized tells of each change of size.
func (t *Terminal) Resized() <-chan os.Signal { return t.resized }

func (t *Terminal) read() {
	defer close(t.keys)
	var buffer [256]byte
	var held []byte
	for {
		select {
		case <-t.stop:
			return
		default:
		}
		began := time.Now()
		n, err := unix.Read(int(t.in.Fd()), buffer[:])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return
		case n == 0 && time.Since(began) < 10*time.Millisecond: // not the 0.1 s: it hung up
			return
		}
		var keys []Key
		keys, held = parseKeys(append(held, buffer[:n]...), n == 0)
		for _, k := range keys {
			select {
			case t.keys <- k:
			case <-t.stop:
				return
			}
		}
	}
}

// Size is the terminal's in cells; a terminal that does not know has 80 by 24.
func (t *Terminal) Size() (width, height int) {
	size, err := unix.IoctlGetWinsize(int(t.out.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 || size.Row == 0 {
		return 80, 24
	}
	return int(size.Col), int(size.Row)
}

// Draw puts lines on the screen, from its top.
func (t *Terminal) Draw(lines []string) error {
	w := bufio.NewWriter(t.out)
	w.WriteString(beginDraw)
	w.WriteString(strings.Join(lines, "\x1b[K\r\n"))
	w.WriteString("\x1b[K" + endDraw)
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write to terminal: %w", err)
	}
	return nil
}

// Close gives the terminal back as it was.
func (t *Terminal) Close() error {
	close(t.stop)
	signal.Stop(t.resized)
	t.done.Wait()
	_, err := t.out.WriteString(leave)
	return errors.Join(err, t.restore())
}

func (t *Terminal) restore() error {
	return unix.IoctlSetTermios(int(t.in.Fd()), unix.TCSETSF, &t.before)
}
