package dotnet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/proc"
)

var errNoSocket = errors.New("it offers no diagnostics (DOTNET_EnableDiagnostics=0, or its directory for temporary files was emptied)")

// connect connects to the socket on which a runtime answers questions, in the
// process's own directory for temporary files. Links there lead nowhere else,
// and who listens must be the process.
func connect(ctx context.Context, pid int) (net.Conn, error) {
	directory, err := openTemporary(pid)
	if err != nil {
		return nil, err
	}
	defer directory.Close()
	names, err := directory.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	inner, err := innerPID(pid)
	if err != nil {
		return nil, err
	}
	err = errNoSocket
	for _, name := range names {
		if !isSocketOf(name, inner) {
			continue
		}
		var c net.Conn
		if c, err = dial(ctx, directory, name, pid); err == nil {
			return c, nil
		}
	}
	return nil, err
}

// isSocketOf recognises dotnet-diagnostic-PID-KEY-socket, where PID is as the
// process knows itself, and KEY the time of its start.
func isSocketOf(name string, pid int) bool {
	rest, ok := strings.CutPrefix(name, "dotnet-diagnostic-"+strconv.Itoa(pid)+"-")
	if !ok {
		return false
	}
	key, ok := strings.CutSuffix(rest, "-socket")
	return ok && key != "" && strings.Trim(key, "0123456789") == ""
}

// openTemporary opens $TMPDIR, or /tmp, as the process sees it.
func openTemporary(pid int) (*os.File, error) {
	environ, err := proc.FS{}.Environ(pid, "TMPDIR")
	if err != nil {
		return nil, err
	}
	name := "/tmp"
	if set := environ["TMPDIR"]; path.IsAbs(set) {
		name = set
	}
	root, err := unix.Open(fmt.Sprintf("/proc/%d/root", pid), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open the root of process " + strconv.Itoa(pid), Path: name, Err: err}
	}
	defer unix.Close(root)
	fd, err := unix.Openat2(root, name, &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// dial connects to a socket by descriptor: its path would be too long for an
// address, and may be another by now.
func dial(ctx context.Context, directory *os.File, name string, pid int) (net.Conn, error) {
	fd, err := unix.Openat(int(directory.Fd()), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd)
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", "/proc/self/fd/"+strconv.Itoa(fd))
	if err != nil {
		return nil, err
	}
	if listener, err := peer(c); err != nil || listener != pid {
		c.Close()
		return nil, errors.Join(err, fmt.Errorf("on %q listens process %d, not %d", name, listener, pid))
	}
	return c, nil
}

// peer tells which process listens on a socket.
func peer(c net.Conn) (pid int, err error) {
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var credentials *unix.Ucred
	var optionErr error
	err = raw.Control(func(fd uintptr) {
		credentials, optionErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err = errors.Join(err, optionErr); err != nil {
		return 0, err
	}
	return int(credentials.Pid), nil
}

// innerPID is the number by which a process knows itself.
func innerPID(pid int) (int, error) {
	status, err := proc.FS{}.Status(pid)
	if err != nil {
		return 0, err
	}
	if n := len(status.NSPID); n > 0 {
		return status.NSPID[n-1], nil
	}
	return pid, nil
}
