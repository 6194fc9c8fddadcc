#include "abi/asserts.c"
