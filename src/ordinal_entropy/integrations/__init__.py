"""The regularizer inside other libraries, one file each; each imports the library it is named after."""
