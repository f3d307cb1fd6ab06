package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"
)

// A file of tokens has a line for each, of its tenant, its role, its SHA-256 in
// hexadecimal, and a name for people; # begins a remark:
//
//	default  agent     9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08  rack 7
//
// The tokens themselves are nowhere in it. They are random, so that a plain hash
// tells nothing of them.

// tokenPrefix is how tokens begin, so that they are recognised where they leak.
const tokenPrefix = "atys_"

const (
	tokenBytes     = 24
	maxTokens      = 100_000
	maxTokensBytes = 32 << 20
	maxNameBytes   = 100
)

// NewToken makes a token.
func NewToken() string {
	var secret [tokenBytes]byte
	_, _ = rand.Read(secret[:]) // it never fails
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(secret[:])
}

// Line is what a file of tokens has of one.
func Line(token string, who Identity) (string, error) {
	hash := sha256.Sum256([]byte(token))
	line := strings.TrimRight(fmt.Sprintf("%s  %s  %s  %s", who.Tenant, who.Role, hex.EncodeToString(hash[:]), who.Name), " ")
	if strings.ContainsAny(line, "\r\n#") {
		return "", fmt.Errorf("name %.40q: want one line without #", who.Name)
	}
	if _, _, err := parseLine(strings.Fields(line)); err != nil {
		return "", err
	}
	return line + "\n", nil
}

// digest is a token's SHA-256.
type digest [sha256.Size]byte

// parse reads a file of tokens.
func parse(text string) (map[digest]Identity, error) {
	known := map[digest]Identity{}
	for number, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		d, who, err := parseLine(words)
		if err == nil && len(known) == maxTokens {
			err = fmt.Errorf("more than %d tokens", maxTokens)
		}
		if _, twice := known[d]; err == nil && twice {
			err = errors.New("a token that another line has")
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number+1, err)
		}
		known[d] = who
	}
	return known, nil
}

func parseLine(words []string) (d digest, who Identity, err error) {
	if len(words) < 3 {
		return d, who, errors.New("want a tenant, a role, and a token's SHA-256")
	}
	who = Identity{Tenant: words[0], Name: strings.Join(words[3:], " ")}
	if err := CheckTenant(who.Tenant); err != nil {
		return d, who, err
	}
	if who.Role, err = ParseRole(words[1]); err != nil {
		return d, who, err
	}
	hash, err := hex.DecodeString(words[2])
	if err != nil || len(hash) != len(d) {
		return d, who, errors.New("the third word is no SHA-256: want 64 hexadecimal digits, not the token itself")
	}
	if len(who.Name) > maxNameBytes {
		return d, who, fmt.Errorf("a name of %d bytes: at most %d are taken", len(who.Name), maxNameBytes)
	}
	return digest(hash), who, nil
}

// lookAgain is how often a file of tokens is looked at, when somebody asks.
const lookAgain = time.Second

// Tokens know who holds one: those of a file, which is read again when it
// changes, and those added. It may be used concurrently.
type Tokens struct {
	path string
	now  func() time.Time
	log  *slog.Logger

	mu     sync.Mutex // guards all below
	known  map[digest]Identity
	added  map[digest]Identity
	state  fileState // of what is known
	looked time.Time
	failed int // times that the file could not be read again
}

// fileState tells one state of a file from another.
type fileState struct {
	changed time.Time
	size    int64
}

// OpenTokens reads a file of tokens; "" is none. Errors of later changes go to
// the log, and what was known before holds.
func OpenTokens(path string, now func() time.Time, log *slog.Logger) (*Tokens, error) {
	t := &Tokens{path: path, now: now, log: log, added: map[digest]Identity{}, looked: now()}
	if path == "" {
		return t, nil
	}
	if err := t.read(); err != nil {
		return nil, fmt.Errorf("read tokens in %q: %w", path, err)
	}
	return t, nil
}

// Add has one more token known, that is in no file.
func (t *Tokens) Add(token string, who Identity) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.added[sha256.Sum256([]byte(token))] = who
}

// Holder tells who holds a token. Tokens are found by their hash, so that how
// long it takes tells nothing of those that are known.
func (t *Tokens) Holder(token string) (Identity, bool) {
	d := digest(sha256.Sum256([]byte(token)))
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refresh()
	if who, ok := t.added[d]; ok {
		return who, true
	}
	who, ok := t.known[d]
	return who, ok
}

// refresh reads the file again, if it has changed. The lock is held.
func (t *Tokens) refresh() {
	now := t.now()
	if t.path == "" || now.Sub(t.looked) < lookAgain && !now.Before(t.looked) {
		return
	}
	t.looked = now
	info, err := os.Stat(t.path)
	if err == nil && t.state == stateOf(info) {
		return
	}
	if err == nil {
		err = t.read()
	}
	if err != nil {
		t.failed++
		t.log.Error("read tokens again: those known before hold", "file", t.path, "error", err)
	}
}

// Failed tells how often the file could not be read again: what has changed in
// it since does not hold, such as that a token was taken back.
func (t *Tokens) Failed() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failed
}

func stateOf(info fs.FileInfo) fileState { return fileState{info.ModTime(), info.Size()} }

// read reads the file. The lock is held, or nobody else knows t.
func (t *Tokens) read() error {
	file, err := os.Open(t.path)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("others may write it (%v): chmod go-w it", info.Mode().Perm())
	}
	text, err := io.ReadAll(io.LimitReader(file, maxTokensBytes+1))
	if err != nil {
		return err
	}
	if len(text) > maxTokensBytes {
		return fmt.Errorf("more than %d bytes", maxTokensBytes)
	}
	known, err := parse(string(text))
	if err != nil {
		return err
	}
	t.known, t.state = known, stateOf(info)
	return nil
}
