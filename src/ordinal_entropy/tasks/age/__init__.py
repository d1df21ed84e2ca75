"""Age from faces: AgeDB-DIR, IMDB-WIKI-DIR, UTKFace, and a generated set in their layout."""
