package dwarf

import "atys.dev/atys/internal/binfile"

// openSplit opens the unit that was split off from this one, if it was and the
// file is there. The closer closes what was opened for it.
func (u *unit) openSplit(compDir string) (*unit, *splitFile) {
	d := u.data
	if d.OpenSplit == nil || u.root.dwoName.class == classNone || d.split {
		return nil, nil
	}
	name := u.string(u.root.dwoName)
	if name == "" {
		return nil, nil
	}
	f, err := d.OpenSplit(compDir, name)
	if err != nil {
		return nil, nil
	}
	split := &splitFile{file: f}
	if split.data, err = open(f, ".dwo"); err != nil {
		f.Close()
		return nil, nil
	}
	for _, s := range split.data.headers {
		if !s.hasCode() {
			continue
		}
		s.skeleton = u
		if s.load() {
			return s, split
		}
	}
	split.Close()
	return nil, nil
}

type splitFile struct {
	file *binfile.File
	data *Data
}

// Close closes the file and what reading it took.
func (s *splitFile) Close() error {
	s.data.Close()
	return s.file.Close()
}
