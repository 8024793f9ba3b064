! Sorts numbers on all ranks; the survivors of a kill finish:  FTSORT_FAULTS=1@1 ftsort-mpirun -np 4 ./hello
program hello
  use ftsort
  implicit none
  real(c_double) :: numbers(1000000)
  real(c_double), pointer :: sorted(:)
  type(c_ptr) :: result, group
  integer(c_int32_t) :: status
  integer :: comm, i
  logical :: is_first
  call ftsort_allow_faults()
  comm = ftsort_mpi_init() ! or MPI_Init of mpi_f08, after ftsort_prepare, and MPI_COMM_WORLD%MPI_VAL
  status = ftsort_group_of(comm, group)
  call random_number(numbers)

  status = ftsort_sort(comm, numbers, result) ! ranks may fail in here
  if (status /= FTSORT_OK) print *, ftsort_error_text(c_null_ptr)

  do i = 1, int(ftsort_result_count(result))
    call ftsort_values(result, i, sorted)
    print *, "rank", ftsort_rank(group), ":", size(sorted), "numbers, ", &
      merge("in order    ", "NOT in order", all(sorted(2:) >= sorted(:size(sorted) - 1)))
  end do
  is_first = ftsort_executor(group, 0) == ftsort_rank(group)
  status = ftsort_leave(group, merge(1, 0, is_first .and. status /= FTSORT_OK))
end program
