! Sorts with a communicator of mpi_f08, and describes records by a datatype of it; on an MPI without fault tolerance too.
! Each rank prints a line with "in order".
!
!   handles      (under mpirun)
program handles
  use mpi_f08
  use ftsort
  implicit none
  integer, parameter :: count = 50000
  real(c_double), target :: numbers(count)
  real(c_double), pointer :: sorted(:)
  type(ftsort_config), target :: config
  type(ftsort_record) :: record
  type(c_ptr) :: group, result
  type(MPI_Comm) :: survivors
  integer(c_int32_t) :: status
  integer :: rank, size_of_comm
  logical :: in_order

  status = ftsort_prepare()
  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  config = ftsort_config_init()
  config%accept_no_ulfm = 1
  status = ftsort_init(MPI_COMM_WORLD%MPI_VAL, c_loc(config), group)
  if (status /= FTSORT_OK) error stop 1
  call random_number(numbers)
  status = ftsort_record_of_type(MPI_DOUBLE_PRECISION%MPI_VAL, record)
  if (status == FTSORT_OK) status = ftsort_run(group, record, c_loc(numbers), int(count, c_size_t), result)
  if (status /= FTSORT_OK) error stop 2
  call ftsort_values(result, 1, sorted)
  in_order = all(sorted(2:) >= sorted(:size(sorted) - 1))
  if (ftsort_comm(group, survivors%MPI_VAL) /= FTSORT_OK) error stop 3
  call MPI_Comm_size(survivors, size_of_comm)
  in_order = in_order .and. size_of_comm == ftsort_ranks(group)
  print "(a, i0, 2a)", "rank ", rank, ": ", merge("in order    ", "not in order", in_order)
  call ftsort_result_free(result)
  call ftsort_free(group)
  call MPI_Finalize()
end program
