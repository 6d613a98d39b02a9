//go:build linux || darwin

package filelock

// cache keeps open files of names that are not held, one a key, up to a limit:
// so a name that is locked again and again is opened once, and a million names
// cost no more than the limit. A file that is taken keeps its seat, so that
// the usual case, one name again and again, changes no map. Under the store's
// mu.
type cache struct {
	limit          int
	seats          map[string]*seat
	newest, oldest *seat
}

// seat is a key's place in the cache.
type seat struct {
	key          string
	file         *file // nil while it is taken
	newer, older *seat
}

// take removes and returns the file of a key, or nil.
func (c *cache) take(key string) *file {
	st := c.seats[key]
	if st == nil || st.file == nil {
		return nil
	}
	f := st.file
	st.file, f.seat = nil, st
	return f
}

// put adds a file that nothing is locked in. It returns the one that has to be
// closed for it, if any.
func (c *cache) put(f *file) (evicted *file) {
	st := f.seat
	if f.seat = nil; st == nil || st.key != f.key {
		st = c.seats[f.key]
	}
	if st == nil {
		if c.seats == nil {
			c.seats = make(map[string]*seat, c.limit)
		}
		if len(c.seats) >= c.limit {
			evicted = c.oldest.file
			c.remove(c.oldest)
		}
		st = &seat{key: f.key}
		c.seats[f.key] = st
		c.push(st)
	} else if st != c.newest {
		c.unlink(st)
		c.push(st)
	}
	if st.file != nil {
		evicted = st.file
	}
	st.file = f
	return evicted
}

func (c *cache) push(st *seat) {
	st.older = c.newest
	if c.newest != nil {
		c.newest.newer = st
	} else {
		c.oldest = st
	}
	c.newest = st
}

func (c *cache) unlink(st *seat) {
	if st.newer != nil {
		st.newer.older = st.older
	} else {
		c.newest = st.older
	}
	if st.older != nil {
		st.older.newer = st.newer
	} else {
		c.oldest = st.newer
	}
	st.newer, st.older = nil, nil
}

// remove frees a seat; whoever took its file finds it without a key.
func (c *cache) remove(st *seat) {
	delete(c.seats, st.key)
	c.unlink(st)
	st.key = ""
}

func (c *cache) closeAll() {
	for c.oldest != nil {
		if f := c.oldest.file; f != nil {
			f.close()
		}
		c.remove(c.oldest)
	}
}
